"""Programs of published models, cut to what one H200 trained."""

QWEN3 = """
model four_layers {
  hf "Qwen/Qwen3-30B-A3B" family qwen3_moe layers 4 hidden 2048 vocab 151936 max_seq 40960
  heads 32 query_groups 4 head_dim 128 qk_norm true ffn_hidden 6144 experts 128 topk 8 expert_hidden 768
}
model four_layers; h200 x 1; seq 4k; batch 16; throughput first
pin dispatcher=alltoall micro_batch=2 cuda_graph=none
"""
MOONLIGHT = """
model five_layers {
  hf "moonshotai/Moonlight-16B-A3B" family deepseek_v3 layers 5 hidden 2048 vocab 163840 max_seq 8192
  attention mla heads 16 query_groups 16 head_dim 64 kv_lora_rank 512 qk_nope_dim 128 qk_rope_dim 64 v_head_dim 128
  qk_norm true ffn_hidden 11264 dense_layers 1 experts 64 topk 6 expert_hidden 1408 shared_expert_hidden 2816
}
model five_layers; h200 x 1; seq 4k; batch 16; throughput first
pin dispatcher=alltoall micro_batch=2 cuda_graph=none
"""
