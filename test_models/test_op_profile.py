"""A family's kinds are what its file says; a layer takes the kind of its flavours, or none."""

import pytest

from census.errors import KindError, ProfileError
from census.op_profile import infer_arch, known_archs, load_op_profile

DECODER = (4, 2, 3, 1, 0, 2, 4, 1, 1, 0)
OPS = "{attMM: 4, attBMM: 2, ffMM: 3, softmax: 1, dropout: 0, normOp: 2, gather: 4, headCast: 1, ffAct: 1, linrec: 0}"
ROUTED = {"dense": (None, "dense", DECODER), "moe": (None, "moe", DECODER)}

FAMILIES = {
    "cm": ("moe", ROUTED),
    "deepseek": ("moe", ROUTED),
    "default": ("decoder", {"decoder": (None, None, DECODER)}),
    "gemma": ("decoder", {"decoder": (None, None, (4, 2, 3, 1, 0, 4, 4, 1, 1, 0))}),
    "gpt2": ("decoder", {"decoder": (None, None, (4, 2, 2, 1, 2, 2, 4, 1, 1, 0))}),
    "llama2": ("decoder", {"decoder": (None, None, DECODER)}),
    "mixtral": ("decoder", {"decoder": (None, None, DECODER)}),
    "moe": ("moe", ROUTED),
    "pangualpha": ("decoder", {"decoder": (None, None, (4, 1, 2, 2, 5, 4, 4, 1, 1, 0))}),
    "qwen": ("decoder", {"decoder": (None, None, DECODER)}),
    "qwen3_5": (
        "full_attention",
        {
            "full_attention": (None, None, DECODER),
            "linear_attention": ("linear", None, (4, 0, 3, 0, 0, 2, 4, 0, 1, 1)),
        },
    ),
    "t5": (
        "decoder",
        {
            "encoder": ("full", "dense", (4, 2, 2, 1, 3, 2, 4, 1, 1, 0)),
            "decoder": ("full_cross", "dense", (8, 4, 2, 2, 4, 3, 6, 2, 1, 0)),
        },
    ),
    "vision": ("encoder", {"encoder": (None, None, (4, 2, 2, 1, 0, 2, 4, 1, 1, 0))}),
}


def profile_of(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_op_profile(path)


def kinds(*names_and_flavours):
    rows = [f"  {name}: {{ops: {OPS}{flavours}}}\n" for name, flavours in names_and_flavours]
    return "kinds:\n" + "".join(rows) + f"default: {names_and_flavours[0][0]}\n"


def test_the_families_of_this_table_are_shipped_and_all_are_sorted():
    assert set(FAMILIES) <= set(known_archs())
    assert list(known_archs()) == sorted(known_archs())


@pytest.mark.parametrize("arch", FAMILIES)
def test_a_family_states_these_kinds(arch):
    profile = load_op_profile(arch)
    stated = {kind.name: (kind.attention, kind.ffn, kind.ops.to_vector()) for kind in profile.kinds.values()}
    assert (profile.arch, profile.default, stated) == (arch, *FAMILIES[arch])


@pytest.mark.parametrize(
    ("arch", "attention", "ffn", "kind"),
    [
        ("llama2", "full", "dense", "decoder"),
        ("llama2", "sliding", "dense", "decoder"),
        ("llama2", "chunked", "moe", "decoder"),
        ("deepseek", "full", "dense", "dense"),
        ("deepseek", "full", "moe", "moe"),
        ("qwen3_5", "full", "moe", "full_attention"),
        ("qwen3_5", "linear", "moe", "linear_attention"),
    ],
)
def test_a_layer_takes_the_kind_of_its_flavours(arch, attention, ffn, kind):
    assert load_op_profile(arch).kind_for(attention, ffn).name == kind


@pytest.mark.parametrize(
    ("attention", "ffn", "kind"),
    [
        ("sliding", "dense", "windowed"),
        ("sliding", "moe", "any"),
        ("full", "moe", "any"),
        ("full", "dense", "dense"),
        ("chunked", "dense", "dense"),
        ("none", "dense", "mixerless"),
    ],
)
def test_an_exact_flavour_goes_before_an_unstated_one(tmp_path, attention, ffn, kind):
    text = kinds(
        ("any", ", attention: full"),
        ("dense", ", ffn: dense"),
        ("windowed", ", attention: sliding, ffn: dense"),
        ("mixerless", ", attention: none, ffn: dense"),
    )
    assert profile_of(tmp_path, text).kind_for(attention, ffn).name == kind


def test_a_family_without_a_kind_names_those_it_has_and_the_families_that_have_one():
    with pytest.raises(KindError) as caught:
        load_op_profile("qwen").kind_for("linear", "moe")
    assert str(caught.value) == (
        "family qwen: expected one kind for a layer of attention linear and feed-forward moe, found none "
        "among decoder (attention full, feed-forward any); pass --arch (arch=) with a family that has one "
        "(jamba, qwen3_5, qwen4_exp), or the file of a profile of your own"
    )


def test_a_layer_that_fits_several_kinds_is_refused(tmp_path):
    twins = profile_of(tmp_path, kinds(("encoder", ""), ("decoder", "")))
    with pytest.raises(KindError, match="found several: encoder, decoder among"):
        twins.kind_for("full", "dense")


def test_an_unknown_family_is_refused_with_the_nearest_and_all_known():
    with pytest.raises(
        ProfileError, match=r"qwn: expected a known family .*; qwen may be meant, else .* cm, cohere, deepseek"
    ):
        load_op_profile("qwn")


def test_a_profile_of_ones_own_is_named_after_its_file(tmp_path):
    profile = profile_of(tmp_path, kinds(("decoder", "")))
    assert (profile.arch, profile.kinds["decoder"].ops.to_vector()) == ("mine", DECODER)
    assert load_op_profile(profile.source) == profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected a mapping of kinds, default, found [1]"),
        ("kinds: {}\ndefault: a", "kinds: expected a mapping of at least one kind"),
        (kinds(("a", "")).replace("default: a", ""), "default: expected a value, found nothing"),
        (
            kinds(("a", "")).replace("default: a", "default: b"),
            "default: expected one of the kinds a, found 'b'",
        ),
        (
            kinds(("a", "")).replace("default: a", "default: [a]"),
            "default: expected one of the kinds a, found ['a']",
        ),
        (kinds(("a", "")) + "extra: 1", "extra: expected one of kinds, default, found an unknown field"),
        (
            kinds(("a", ", fn: moe")),
            "kinds.a: fn: expected one of ops, attention, ffn, norms, optional, found an unknown field",
        ),
        (kinds(("a", ", ffn: wide")), "kinds.a: ffn: expected one of dense, sparse, moe, none, found 'wide'"),
        (
            kinds(("a", ", attention: null")),
            "kinds.a: attention: expected one of full, full_nope, linear, sliding, chunked, ",
        ),
        (kinds(("a", ", norms: 3")), "kinds.a: norms: expected the kind's normOp, 2, found 3; correct one"),
        (kinds(("a", ", optional: bias")), "kinds.a: optional: expected a list of names of modules or parameters"),
        (kinds(("a", "")).replace(", linrec: 0", ""), "kinds.a.ops: linrec: expected a value, found nothing"),
        (kinds(("a", "")).replace("linrec", "linrecs"), "kinds.a.ops: linrecs: expected a field of OpCounts"),
        (kinds(("a", "")).replace("attMM: 4", "attMM: 4.0"), "kinds.a.ops: attMM: expected a whole number"),
        (
            kinds(("a", ", ffn: moe"), ("b", ", ffn: moe")),
            "kinds.b: expected a flavour of its own, found that of a",
        ),
        (
            kinds(("a", ", ffn: moe"), ("b", ", attention: full, ffn: moe")),
            "kinds.b: expected a flavour of its own",
        ),
        (kinds(("a", ""), ("a", "")), "expected each key once, found 'a' twice"),
        ("#" * 2_000_000, "expected at most 1048576 bytes, found more"),
    ],
)
def test_a_broken_profile_is_refused_by_file_and_field(tmp_path, text, message):
    with pytest.raises(ProfileError) as caught:
        profile_of(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'mine.yaml'}: ")
    assert message in str(caught.value)


def test_a_file_that_is_no_text_is_no_profile(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ProfileError, match="expected UTF-8 text, found other bytes"):
        load_op_profile(path)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("Llama2-7B", "llama2"),
        ("Mixtral-8x7B-v0.1 mixtral", "mixtral"),
        ("DeepSeek-V3 deepseek_v3", "deepseek"),
        ("Qwen3-Next-80B-A3B", "qwen3_5"),
        ("mine qwen3_next", "qwen3_5"),
        ("Qwen3-Coder-Next", "qwen3_5"),
        ("Qwen3.5-27B", "qwen3_5"),
        ("Qwen3.6-35B-A3B", "qwen3_5"),
        ("Qwen3-8B", "qwen"),
        ("pcm-7b", "cm"),
        ("gemma-3-27b", "gemma"),
        ("GLM-4.7-Flash glm4_moe_lite", "deepseek"),
        ("GLM-4.5-Air glm4_moe", "moe"),
        ("GLM-4.6", "moe"),
        ("GLM-4.7", "moe"),
        ("GLM-4-32B-0414 glm4", "gemma"),
        ("Llama-4-Maverick llama4", "moe"),
        ("gpt2-xl", "gpt2"),
        ("Kimi-K2-Instruct", "deepseek"),
        ("OLMo-Hybrid-7B", "qwen3_5"),
    ],
)
def test_a_name_points_to_its_family(name, arch, recwarn):
    assert infer_arch(name) == arch
    assert not recwarn.list


def test_a_name_that_points_nowhere_is_taken_as_default_with_a_warning():
    with pytest.warns(UserWarning, match=r"gpt-oss-20b: .*taken as 'default': pass --arch \(arch=\)"):
        assert infer_arch("gpt-oss-20b") == "default"


@pytest.mark.parametrize("arch", ["cm", "deepseek", "llama2", "mixtral", "pangualpha", "qwen", "qwen3_5", "t5"])
def test_a_familys_own_name_points_to_it(arch):
    assert infer_arch(arch) == arch
