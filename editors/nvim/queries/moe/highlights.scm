; Generated from grammar/moe.lark by tools/make_editors.py. Where two patterns name a node, the later one counts.

(comment) @comment @spell
(string) @string
[(number) (version)] @number
(bool) @boolean

[
  "model"
  "hardware"
  "seq"
  "batch"
  "micro_batch"
  "precision"
  "task"
  "adapter"
  "routing"
  "risk"
  "vlm"
  "data"
  "weights"
  "pin"
  "require"
  "prefer"
  "allow"
  "sweep"
  "isolate"
  "workflow"
  "set"
  "lr"
  "schedule"
  "checkpoints"
  "log"
  "wandb"
  "target"
  "resilience"
  "for"
  "cluster"
  "calibration"
  "document"
  "rules"
  "profile"
  "run"
  "use"
  "let"
  "default"
  "candidates"
  "derive"
  "env"
  "rank"
  "measured"
  "symptom"
  "effect"
] @keyword

[
  "because"
  "cite"
  "worth"
  "confirm"
  "fix"
  "since"
  "until"
  "when"
  "of"
  "from"
  "near"
  "first"
  "x"
] @keyword.modifier

[ "and" "or" "not" "in" ] @keyword.operator
["if" "then" "else"] @keyword.conditional
[ "!=" "//" "<=" "==" "=>" ">=" "%" "*" "+" "-" "/" "<" "=" ">" ] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
[":" "," ";"] @punctuation.delimiter

[(name) (word)] @variable
[
  (binding . (name) @property)
  (value_fact . (name) @property)
  (bindings_fact . (name) @property)
  (block_fact . (name) @property)
]

[
  (cite . (name) @attribute)
]

([(name) (word)] @constant.builtin
  (#any-of? @constant.builtin "fit" "scale" "profile" "throughput" "pretrain" "sft" "peft" "natural" "balanced" "mock" "real" "high" "best" "low" "freeze_vision" "freeze_projection" "freeze_language" "none" "lora" "dora" "canonical_lora" "linear_qkv" "linear_proj" "linear_fc1" "linear_fc2" "in_proj" "out_proj" "linear_q_proj" "linear_q_down_proj" "linear_q_up_proj" "linear_kv_down_proj" "linear_kv_up_proj" "fc1_latent_proj" "fc2_latent_proj" "eh_proj" "router" "linear_q" "linear_k" "linear_v" "linear_fc1_up" "linear_fc1_gate" "shared" "each" "outer" "static" "unpadded" "packed" "variable" "gqa" "mla" "each_head" "all_heads" "split_heads" "rope" "yarn" "mrope" "ampere" "hopper" "blackwell" "rubin" "layernorm" "moe_act" "mla_up_proj" "shared_experts" "core_attn" "mlp" "moe" "full" "optimizer" "attn_norm" "qkv_linear" "attn_proj" "mlp_norm" "expert_fc1" "alltoall" "deepep" "hybridep" "ncclep" "attn" "moe_router" "moe_preprocess" "full_iteration" "mamba" "bf16" "fp8_blockwise" "fp8_current" "mxfp8" "nvfp4" "fsdp" "fp32"))

((name) @variable.builtin
  (#any-of? @variable.builtin "pp" "tp" "cp" "etp" "ep" "vpp" "micro_batch" "recompute" "offload" "offload_modules" "dispatcher" "cuda_graph" "ep_overlap" "delay_wgrad" "precision" "sharding" "moments" "grad_reduce" "overlap.ep" "overlap.wgrad" "overlap"))

(call . (name) @function.builtin)

[
  (hardware_decl . _ . (name) @type.definition)
  (model_decl . _ . (name) @type.definition)
  (cluster_decl . _ . (name) @type.definition)
  (calibration_decl . _ . (name) @type.definition)
  (document_decl . _ . (name) @type.definition)
  (rules_decl . _ . (name) @type.definition)
  (profile_decl . _ . (name) @type.definition)
  (run_decl . _ . (name) @type.definition)
]

(profile_decl (first_name "first" @type.definition))

[
  (law . _ . (name) @label)
  (advice . _ . (name) @label)
  (rank . _ . (name) @label)
  (measured . _ . (name) @label)
  (symptom . _ . (name) @label)
]


