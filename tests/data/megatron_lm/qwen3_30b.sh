#!/bin/bash
# A sweep file's style: model, parallelism and extras in arrays, one of them empty
set -x
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "${HERE}/common_env.sh"
unset NCCL_DEBUG
declare -x NVTE_FUSED_ATTN=1
export CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_GRAPH_REGISTER=0
EP=8
SEQ=$(( 4 * 1024 ))
GBS=$((EP * 32))
FP8=1
EXTRA_ARGS=()
GPT_MODEL_ARGS=(
    --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144
    --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128
    --max-position-embeddings 40960 --seq-length "${SEQ}"
    --normalization RMSNorm --norm-epsilon 1e-6 --qk-layernorm   # as in the published model
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
    --position-embedding-type rope --rotary-percent 1.0 --rotary-base 1000000
    --attention-dropout 0.0 --hidden-dropout 0.0 --vocab-size 151936 --make-vocab-size-divisible-by 1187
    --num-experts 128 --moe-ffn-hidden-size 768 --moe-router-topk 8
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff=1e-3
    --moe-grouped-gemm --moe-permute-fusion --moe-router-dtype fp32 --moe-router-fusion
    --moe-token-dispatcher-type alltoall
)
case "$FP8" in
    1|yes) EXTRA_ARGS+=(--fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather) ;;
    *) ;;
esac
function optimizer_args() {
    local precise="$1"
    OPTIMIZER_ARGS=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
    if [[ $precise == yes ]]; then
        OPTIMIZER_ARGS+=(--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16)
    fi
}
optimizer_args yes
for i in 1 2 3; do
    echo "waiting for the file system ($i)"
done
torchrun --nproc-per-node=8 --nnodes=4 --rdzv-backend c10d --rdzv-endpoint "$(hostname):29500" \
    "${MEGATRON:-/opt/megatron-lm}/pretrain_gpt.py" \
    "${GPT_MODEL_ARGS[@]}" "${OPTIMIZER_ARGS[@]}" ${EXTRA_ARGS[@]} \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --expert-model-parallel-size $EP \
    --micro-batch-size 1 --global-batch-size $GBS --train-iters 50 --lr 3e-4 --min-lr 3e-5 --bf16 \
    --tokenizer-type NullTokenizer --mock-data --manual-gc --manual-gc-interval 5 \
    --recompute-granularity selective --recompute-modules layernorm moe_act
