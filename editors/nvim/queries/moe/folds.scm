[
  (hardware_decl)
  (model_decl)
  (cluster_decl)
  (calibration_decl)
  (document_decl)
  (rules_decl)
  (profile_decl)
  (run_decl)
  (block_fact)
  (list)
  (paren)
] @fold

