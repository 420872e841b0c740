"""Writes a tiny Llama with random weights in Hugging Face's layout (600 KB): a real model for vLLM. Runs in vLLM's own environment.

``make_tiny_llama.py FOLDER``. The tokenizer is trained on one sentence; its words are few, so most text becomes bytes.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, FEED_FORWARD, LAYERS, HEADS, VOCABULARY, CONTEXT = 64, 128, 2, 2, 512, 2048
SENTENCE = "some of the words that people use every day are short and some are not and a model of them is small"
SPECIAL = ["<s>", "</s>"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
letters = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False)
tokenizer.train_from_iterator([SENTENCE] * 10, trainer)
tokenizer.save(str(folder / "tokenizer.json"))
settings = {
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "model_max_length": CONTEXT,
    "chat_template": TEMPLATE,
}  # fmt: skip
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS,
    "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 1,
    "torch_dtype": "float32", "tie_word_embeddings": False, "hidden_act": "silu", "rope_theta": 10000.0,
}  # fmt: skip
(folder / "config.json").write_text(json.dumps(config))

numbers = torch.Generator().manual_seed(0)


def weights(*shape, spread=0.3):
    return torch.randn(*shape, generator=numbers) * spread


tensors = {
    "model.embed_tokens.weight": weights(VOCABULARY, HIDDEN, spread=1.0),
    "model.norm.weight": torch.ones(HIDDEN),
    "lm_head.weight": weights(VOCABULARY, HIDDEN, spread=1.0),
}
tensors["lm_head.weight"][: len(SPECIAL)] = 0.0  # the marks of begin and end are never the likeliest
for layer in range(LAYERS):
    at = f"model.layers.{layer}."
    tensors |= {at + f"{norm}_layernorm.weight": torch.ones(HIDDEN) for norm in ("input", "post_attention")}
    tensors |= {at + f"self_attn.{name}_proj.weight": weights(HIDDEN, HIDDEN) for name in "qkvo"}
    tensors |= {at + f"mlp.{name}_proj.weight": weights(FEED_FORWARD, HIDDEN) for name in ("gate", "up")}
    tensors[at + "mlp.down_proj.weight"] = weights(HIDDEN, FEED_FORWARD)
save_file(
    {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"}
)
