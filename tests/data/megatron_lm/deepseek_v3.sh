#!/usr/bin/env bash
set -euo pipefail

# Parallelism and batch: override from outside, e.g. PP=16 EP=32 bash deepseek_v3.sh
TP=${TP:-1}
PP=${PP:-16}
EP=${EP:-64}
CP=${CP:-1}
MBS=${MBS:-1}
GBS=${GBS:-8192}
SEQ_LEN=${SEQ_LEN:-4096}
MOE_GROUPED_GEMM=${MOE_GROUPED_GEMM:-true}
PRETRAIN=${PRETRAIN:-1}
export TRITON_CACHE_DIR="/tmp/triton_cache/"
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export NCCL_NVLS_ENABLE=0
export CUDA_DEVICE_MAX_CONNECTIONS=1
: "${NODES:=128}"

LAYOUT="Et*3|(tt|)*29m|L"

TRAINING_PARAMS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
 --expert-model-parallel-size ${EP} --context-parallel-size ${CP} --expert-tensor-parallel-size 1 \
 --pipeline-model-parallel-layout '${LAYOUT}' --use-distributed-optimizer --sequence-parallel \
 --overlap-grad-reduce --overlap-param-gather --use-mcore-models --use-flash-attn \
 --transformer-impl transformer_engine --micro-batch-size ${MBS} --global-batch-size ${GBS} \
 --train-samples 585937500 --exit-duration-in-mins 220 --no-save-optim --no-check-for-nan-in-loss-and-grad \
 --cross-entropy-loss-fusion --cross-entropy-fusion-impl native --manual-gc --manual-gc-interval 10 \
 --seq-length ${SEQ_LEN} --mock-data --tokenizer-type HuggingFaceTokenizer --tokenizer-model deepseek-ai/DeepSeek-V3"
MODEL_PARAMS="--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128 \
 --max-position-embeddings ${SEQ_LEN} --position-embedding-type rope --rotary-base 10000 --rotary-scaling-factor 40 \
 --make-vocab-size-divisible-by 3232 --normalization RMSNorm --norm-epsilon 1e-6 --swiglu \
 --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0 \
 --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 \
 --v-head-dim 128 --mscale 1.0 --mscale-all-dim 1.0 --qk-layernorm --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 \
 --no-rope-fusion"
MOE_PARAMS="--num-experts 256 --moe-layer-freq '([0]*3+[1]*58)' --moe-ffn-hidden-size 2048 \
 --moe-shared-expert-intermediate-size 2048 --moe-router-load-balancing-type seq_aux_loss --moe-router-topk 8 \
 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep --moe-router-pre-softmax \
 --moe-aux-loss-coeff 1e-4 --moe-router-group-topk 4 --moe-router-num-groups 8 --moe-router-topk-scaling-factor 2.5 \
 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-3 \
 --moe-router-dtype fp32 --moe-permute-fusion --moe-router-force-load-balancing"
OPTIM_PARAMS="--lr 3.9e-6 --min-lr 3.9e-7 --lr-warmup-init 3.9e-7 --lr-warmup-samples 1536000 --lr-decay-style cosine \
 --lr-decay-samples 584765624 --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0 \
 --init-method-std 0.02 --use-precision-aware-optimizer --main-grads-dtype fp32 --main-params-dtype fp32 \
 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --bf16"
PARAMS="${TRAINING_PARAMS} ${MODEL_PARAMS} ${MOE_PARAMS} ${OPTIM_PARAMS}"

[[ ${MOE_GROUPED_GEMM} == true ]] && PARAMS="${PARAMS} --moe-grouped-gemm"
if [ ${PRETRAIN} -eq 1 ]; then
    PARAMS+=" --recompute-granularity selective --recompute-modules mla_up_proj mlp moe_act"
else
    PARAMS+=" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
fi

cmd="python -u ${MEGATRON_PATH}/pretrain_gpt.py ${PARAMS} ${PROFILE_PARAMS:-}"
srun --nodes=${NODES} --ntasks-per-node=8 --gpus-per-node=h100:8 --mpi=pmix -l \
    --container-image ${CONTAINER_IMAGE} bash -c "nvidia-smi -L; ${cmd}" 2>&1 | tee ${SLURM_JOB_ID}.log
