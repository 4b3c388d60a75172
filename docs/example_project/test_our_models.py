"""What our models run, pinned."""

from our_models import ByHand, OurConfig

from census import OwnModel


def test_our_model(census):
    """An architecture that the auto classes know."""
    config = OurConfig(
        hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, vocab_size=128
    )
    census.check_golden(config, name="our-7b", profile="default")


def test_our_module(census):
    """A module that is built by hand."""
    model = OwnModel(build=ByHand, model_type="by_hand", embedding="table", head="head")
    census.check_golden(model, name="our-module", profile="profiles/ours.yaml")
