"""What Transformers' cache holds otherwise than a spec states, by model type, with the reason."""

WITHOUT = {
    "granite4_vision": "the language model alone returns no cache",
    "openai-gpt": "the model keeps no cache",
    "recurrent_gemma": "states are kept on the layers themselves",
    "xlnet": "the model keeps hidden states, not keys and values",
    "hrm_text": "its cache is for as many passes as the whole config states",
    "musicgen": "a cache runs on one codebook's tokens at a time",
    "musicgen_melody": "a cache runs on one codebook's tokens at a time",
    "switch_transformers": "the encoder refuses a cache, and the model hands it one",
    "xlstm": "the state of a block is written into one of another shape",
}
"""Types whose forward leaves no cache to count, with the reason."""

OTHERWISE = {
    "cpmant": "32 prompt tokens of the model's own are cached, too",
    "deepseek_v4": "compressed entries and the windows before them are cached in buffers of their own",
    "falcon-180b": "keys and values are repeated for their queries before they are cached",
    "glm5_next": "an indexer's pooled keys are cached beside the unpooled ones of its last block",
    "inkling2_loop": "the tails of short convolutions are cached for attention's inputs, too",
    "inkling2_text": "the tails of short convolutions are cached for attention's inputs, too",
    "inkling_text": "the tails of short convolutions are cached for attention's inputs, too",
    "qwen4_exp": "per-layer embeddings cache a convolution's tail and token numbers",
    "rwkv": "the last hidden states of the time shift are cached beside the recurrence's",
    "t5gemma": "the decoder's attention to the encoder is cached whole, its own within the window",
    "zaya": "a convolution's tail is cached without the token that comes next",
}
"""Types and cases whose cache holds more or less than a spec states, with the reason."""
