#!/bin/bash
#SBATCH --job-name=qwen3-235b
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=8        # one task for each GPU
#SBATCH --gres=gpu:h100:8
#SBATCH --time=04:00:00
#SBATCH --exclusive

module load cuda/12.8 nccl
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + RANDOM % 20000))
export WORLD_SIZE=$SLURM_NTASKS
export CUDA_DEVICE_MAX_CONNECTIONS=1
export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789

REPO=${REPO:-$HOME/Megatron-LM}
WORLD=$(( SLURM_JOB_NUM_NODES * 8 ))
PP=8
MICRO=1
ACC=32
GLOBAL=$(( WORLD / PP * MICRO * ACC ))

options=" \
    --num-layers 94 \
    --hidden-size 4096 \
    --ffn-hidden-size 12288 \
    --num-attention-heads 64 \
    --group-query-attention --num-query-groups 4 \
    --kv-channels 128 --qk-layernorm \
    --seq-length 8192 --max-position-embeddings 40960 \
    --position-embedding-type rope --use-rotary-position-embeddings --rotary-base 1000000 \
    --normalization RMSNorm --norm-epsilon 1e-6 --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 \
    --num-experts 128 --moe-ffn-hidden-size 1536 --moe-router-topk 8 \
    --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 1e-3 --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall --moe-router-dtype fp32 \
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size $PP \
    --decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11 \
    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 \
    --use-distributed-optimizer --overlap-grad-reduce \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --micro-batch-size $MICRO --global-batch-size $GLOBAL \
    --train-iters 100000 --lr 1.2e-4 --min-lr 1.2e-5 --lr-decay-style cosine --lr-warmup-iters 2000 \
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --bf16 \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-235B-A22B \
    --data-path /lustre/data/corpus_text_document --split 998,1,1 \
    --save /lustre/ckpt/qwen3 --load /lustre/ckpt/qwen3 --save-interval 500 --ckpt-format torch_dist --async-save \
    --log-interval 1 --log-throughput --eval-iters 0 --distributed-timeout-minutes 30"

run_cmd="cd $REPO && python -u pretrain_gpt.py ${options}"

srun -l --container-image=nvcr.io/nvidia/pytorch:25.09-py3 \
     --container-mounts=/lustre:/lustre --output=logs/%x_%j.log sh -c "${run_cmd}"
