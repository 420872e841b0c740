"""Writes a tiny Llama with random weights as a GGUF file: a real model for llama.cpp, of half a megabyte. Runs in llama's own environment."""

import sys

import gguf
import numpy as np

EMBEDDING, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 64, 2, 4, 128, 4096
UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1
WORDS = "the of and to in is you that it he was for on are as with his they at be this have from or one had by but not what all were we when"

tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
words = ["▁", *(chr(code) for code in range(33, 127)), *("▁" + word for word in WORDS.split())]
kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words)
tokens += words
scores = [0.0] * 259 + [-float(rank) for rank in range(len(words))]
rng = np.random.default_rng(0)


def weights(*shape):
    return (rng.standard_normal(shape) * 0.05).astype(np.float32)


writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_name("tiny-random")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(EMBEDDING)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(FEED_FORWARD)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(EMBEDDING // HEADS)
writer.add_vocab_size(len(tokens))
writer.add_file_type(gguf.LlamaFileType.ALL_F32)
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores(scores)
writer.add_token_types(kinds)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_unk_token_id(0)
writer.add_add_bos_token(True)
writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")
for name in ("token_embd", "output"):
    writer.add_tensor(f"{name}.weight", weights(len(tokens), EMBEDDING))
writer.add_tensor("output_norm.weight", np.ones(EMBEDDING, np.float32))
for layer in range(LAYERS):
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(EMBEDDING, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.{layer}.{name}.weight", weights(EMBEDDING, EMBEDDING))
    for name in ("ffn_gate", "ffn_up"):
        writer.add_tensor(f"blk.{layer}.{name}.weight", weights(FEED_FORWARD, EMBEDDING))
    writer.add_tensor(f"blk.{layer}.ffn_down.weight", weights(EMBEDDING, FEED_FORWARD))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
