" Generated from grammar/moe.lark by tools/make_editors.py.
" A keyword is one only where it may stand: at the start of a statement, of a declaration or of a member of its block.
if exists('b:current_syntax')
  finish
endif
let s:cpo = &cpo
set cpo&vim
syntax case match
syntax sync minlines=200

" Names, the plain ones first: of two that match, Vim takes the one defined later.
syntax match moeName '\v[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*'
syntax match moeOption '\v[A-Za-z0-9_]+%(\.[A-Za-z0-9_]+)*' contained
syntax match moeAxis '\v%(offload_modules|overlap\.wgrad|delay_wgrad|grad_reduce|micro_batch|cuda_graph|dispatcher|ep_overlap|overlap\.ep|precision|recompute|sharding|moments|offload|overlap|etp|vpp|cp|ep|pp|tp)%([A-Za-z0-9_.])@!'
syntax match moeValue '\v%(linear_kv_down_proj|linear_q_down_proj|freeze_projection|linear_kv_up_proj|linear_q_up_proj|fc1_latent_proj|fc2_latent_proj|freeze_language|linear_fc1_gate|canonical_lora|full_iteration|moe_preprocess|shared_experts|fp8_blockwise|freeze_vision|linear_fc1_up|linear_q_proj|fp8_current|linear_proj|mla_up_proj|split_heads|expert_fc1|linear_fc1|linear_fc2|linear_qkv|moe_router|qkv_linear|throughput|all_heads|attn_norm|attn_proj|blackwell|core_attn|each_head|layernorm|optimizer|alltoall|balanced|hybridep|linear_k|linear_q|linear_v|mlp_norm|out_proj|pretrain|unpadded|variable|eh_proj|in_proj|moe_act|natural|profile|ampere|deepep|hopper|ncclep|packed|router|shared|static|mamba|mrope|mxfp8|nvfp4|outer|rubin|scale|attn|best|bf16|dora|each|fp32|fsdp|full|high|lora|mock|none|peft|real|rope|yarn|fit|gqa|low|mla|mlp|moe|sft)%([A-Za-z0-9_.])@!'
syntax match moeFunction '\v%(has_layout|segment|version|count|floor|ceil|join|log2|pow2|sqrt|abs|max|min)\ze\s*\('
syntax match moeNumber '\v[0-9][A-Za-z0-9_.]*%(%([eE])@1<=[+-][0-9]+)='
syntax match moeNumber '\v[0-9]+%(\.[0-9]+)=%([eE][+-]=[0-9]+)=[kMG]=%(\s*%(PFLOPS|TFLOPS|GB/s|TB/s|GiB|TiB|GB|TB)%([A-Za-z0-9_.])@!|\%%([A-Za-z0-9_("\[])@!|\s+\%%(\s*%($|[#;}\]),]|%(because|confirm|since|until|worth|cite|when|fix)%([A-Za-z0-9_.])@!))@=)'
syntax match moeOperator '[-+*/%=<>!]\+'
syntax match moeDelimiter '[:,;]'
syntax match moeConstant '\v%(false|true)%([A-Za-z0-9_.])@!'
syntax match moeWordOperator '\v%(else|then|and|not|if|in|or)%([A-Za-z0-9_.])@!'
syntax match moeClause '\v%(because|confirm|since|until|worth|cite|when|fix)%([A-Za-z0-9_.])@!'
syntax region moeString start='"' skip='\\.' end='"' oneline contains=moeEscape
syntax match moeEscape '\\.' contained
syntax match moeComment '#.*$' contains=@Spell
syntax region moeBrackets matchgroup=moeDelimiter start='[(\[]' end='[)\]]' contains=@moeExpression
syntax cluster moeExpression contains=moeName,moeAxis,moeValue,moeFunction,moeNumber,moeOperator,moeDelimiter,moeConstant,moeWordOperator,moeClause,moeString,moeComment,moeBrackets

" Statements
syntax match moeStatement '\v%(%(^|[;{])\s*)@<=%(checkpoints|micro_batch|resilience|precision|hardware|schedule|workflow|adapter|isolate|require|routing|weights|prefer|target|allow|batch|model|sweep|wandb|data|risk|task|for|log|pin|seq|set|vlm|lr)%([A-Za-z0-9_.])@!'
syntax match moeLink '\v%(%(%(^|[;{])\s*)@<=%(hardware\s+)=[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*\s+)@<=x%([A-Za-z0-9_.-])@!'
syntax match moeLink '\v%(%(%(^|[;{])\s*)@<=[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*\s+)@<=first%([A-Za-z0-9_.])@!'
syntax match moeStatement '\v%(%(^|[;{])\s*)@<=profile\ze\s+first%([A-Za-z0-9_.])@!%(\s*\{)@!'
syntax region moeOptions matchgroup=moeStatement start='\v%(%(^|[;{])\s*)@<=vlm%([A-Za-z0-9_.])@!' end='$' end='[;}#]'me=s-1 oneline contains=moeOption,moeAxis,moeValue
syntax match moeVersion '\v%(%(%(^|[;{])\s*)@<=target\s+[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*\s+)@<=[A-Za-z0-9_]+%(\.[A-Za-z0-9_]+)*'
syntax cluster moeRun contains=@moeExpression,moeStatement,moeLink,moeOptions,moeVersion

" Declarations: from their first word to their closing brace
syntax match moeDeclaration '\v%(%(^|[;{])\s*)@<=use%([A-Za-z0-9_.])@!'
syntax region moeFactsOf matchgroup=moeDeclaration start='\v%(%(^|[;{])\s*)@<=%(calibration|document|hardware|cluster|model)%(\s+[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*\s*\{)@=' matchgroup=moeDelimiter end='}' fold contains=moeDeclared,moeFacts
syntax region moeRulesOf matchgroup=moeDeclaration start='\v%(%(^|[;{])\s*)@<=%(rules)%([A-Za-z0-9_.])@!' matchgroup=moeDelimiter end='}' fold contains=@moeExpression,moeDeclared,moeDeclaredLink,moeMembers
syntax region moeRunOf matchgroup=moeDeclaration start='\v%(%(^|[;{])\s*)@<=%(profile|run)%([A-Za-z0-9_.])@!%(\s+first%([A-Za-z0-9_.])@!%(\s*\{)@!)@!' matchgroup=moeDelimiter end='}' fold contains=moeDeclared,moeDeclaredLink,moeName,moeBody
syntax match moeDeclared '\v%(%(%(^|[;{])\s*)@<=%(calibration|document|hardware|cluster|profile|model|rules|run|use)\s+)@<=[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*' contained
syntax match moeDeclaredLink '\v%(%(%(^|[;{])\s*)@<=%(rules|run)\s+[A-Za-z_][A-Za-z0-9_]*%(\.[A-Za-z0-9_]+)*\s+)@<=%(of|from)%([A-Za-z0-9_.])@!' contained
syntax region moeFacts matchgroup=moeDelimiter start='{' end='}'me=e-1 contained contains=@moeExpression,moeGroup
syntax region moeGroup matchgroup=moeDelimiter start='{' end='}' fold contained contains=@moeExpression,moeGroup
syntax region moeMembers matchgroup=moeDelimiter start='{' end='}'me=e-1 contained contains=@moeExpression,moeMember
syntax match moeMember '\v%(%(^|[;{])\s*)@<=%(candidates|measured|default|require|symptom|derive|effect|prefer|rank|env|let)%([A-Za-z0-9_.])@!' contained
syntax region moeBody matchgroup=moeDelimiter start='{' end='}'me=e-1 contained contains=@moeRun

highlight default link moeStatement Statement
highlight default link moeDeclaration Structure
highlight default link moeMember Statement
highlight default link moeClause Keyword
highlight default link moeLink Keyword
highlight default link moeDeclaredLink Keyword
highlight default link moeWordOperator Operator
highlight default link moeOperator Operator
highlight default link moeDelimiter Delimiter
highlight default link moeConstant Boolean
highlight default link moeNumber Number
highlight default link moeVersion Number
highlight default link moeString String
highlight default link moeEscape SpecialChar
highlight default link moeComment Comment
highlight default link moeDeclared Type
highlight default link moeAxis Identifier
highlight default link moeValue Constant
highlight default link moeFunction Function

let b:current_syntax = 'moe'
let &cpo = s:cpo
unlet s:cpo
