;;; moe-mode.el --- Run files of moedsl  -*- lexical-binding: t; -*-

;; Version: 0.1
;; Package-Requires: ((emacs "27.1"))
;; Keywords: languages

;;; Commentary:

;; Generated from grammar/moe.lark by tools/make_editors.py.
;;
;; Colours and indents .moe files, knows their comments and declarations (imenu), and registers `moedsl lsp' with
;; eglot: M-x eglot in a .moe file, or (add-hook 'moe-mode-hook #'eglot-ensure).
;; A keyword is one only where it may stand: at the start of a statement, of a declaration or of a member.

;;; Code:

(defgroup moe nil
  "Run files of moedsl."
  :group 'languages)

(defcustom moe-server-command '("moedsl" "lsp")
  "Command of the language server."
  :type '(repeat string))

(defcustom moe-indent-offset 2
  "Columns of one step of indentation."
  :type 'integer
  :safe #'integerp)

(defconst moe--statements '("model" "hardware" "seq" "batch" "micro_batch" "precision" "task" "adapter" "routing" "risk" "vlm" "data" "weights" "pin" "require" "prefer" "allow" "sweep" "isolate" "workflow" "set" "lr" "schedule" "checkpoints" "log" "wandb" "target" "resilience" "for"))
(defconst moe--declarations '("hardware" "model" "cluster" "calibration" "document" "rules" "profile" "run" "use"))
(defconst moe--members '("require" "prefer" "let" "default" "candidates" "derive" "env" "rank" "measured" "symptom" "effect"))
(defconst moe--clauses '("because" "cite" "worth" "confirm" "fix" "since" "until" "when"))
(defconst moe--operators '("if" "then" "else" "and" "or" "not" "in"))
(defconst moe--constants '("true" "false"))
(defconst moe--axes '("pp" "tp" "cp" "etp" "ep" "vpp" "micro_batch" "recompute" "offload" "offload_modules" "dispatcher" "cuda_graph" "ep_overlap" "delay_wgrad" "precision" "sharding" "moments" "grad_reduce" "overlap.ep" "overlap.wgrad" "overlap"))
(defconst moe--values '("fit" "scale" "profile" "throughput" "pretrain" "sft" "peft" "natural" "balanced" "mock" "real" "high" "best" "low" "freeze_vision" "freeze_projection" "freeze_language" "none" "lora" "dora" "canonical_lora" "linear_qkv" "linear_proj" "linear_fc1" "linear_fc2" "in_proj" "out_proj" "linear_q_proj" "linear_q_down_proj" "linear_q_up_proj" "linear_kv_down_proj" "linear_kv_up_proj" "fc1_latent_proj" "fc2_latent_proj" "eh_proj" "router" "linear_q" "linear_k" "linear_v" "linear_fc1_up" "linear_fc1_gate" "shared" "each" "outer" "static" "unpadded" "packed" "variable" "gqa" "mla" "each_head" "all_heads" "split_heads" "rope" "yarn" "mrope" "ampere" "hopper" "blackwell" "rubin" "layernorm" "moe_act" "mla_up_proj" "shared_experts" "core_attn" "mlp" "moe" "full" "optimizer" "attn_norm" "qkv_linear" "attn_proj" "mlp_norm" "expert_fc1" "alltoall" "deepep" "hybridep" "ncclep" "attn" "moe_router" "moe_preprocess" "full_iteration" "mamba" "bf16" "fp8_blockwise" "fp8_current" "mxfp8" "nvfp4" "fsdp" "fp32"))
(defconst moe--functions '("min" "max" "abs" "ceil" "floor" "log2" "sqrt" "pow2" "count" "version" "join" "segment" "has_layout"))
(defconst moe--facts-blocks '("hardware" "model" "cluster" "calibration" "document"))
(defconst moe--rules-blocks '("rules"))
(defconst moe--run-blocks '("profile" "run"))

(defconst moe--name "[A-Za-z_][A-Za-z0-9_]*\\(?:\\.[A-Za-z0-9_]+\\)*")
(defconst moe--units "\\(?:GB/s\\|TB/s\\|GiB\\|TiB\\|GB\\|TB\\|TFLOPS\\|PFLOPS\\)\\_>")

(defun moe--words (words)
  "Regular expression of WORDS where they are whole."
  (concat "\\_<" (regexp-opt words) "\\_>"))

(defface moe-keyword '((t :inherit font-lock-keyword-face))
  "Words that start a statement, a declaration or a member of its block.")

(defface moe-link '((t :inherit font-lock-builtin-face))
  "Words inside a statement, such as `x` and `first`.")

(defface moe-clause '((t :inherit font-lock-preprocessor-face))
  "Words that start a clause, such as `because`.")

(defface moe-declared '((t :inherit font-lock-type-face))
  "Names that a declaration gives.")

(defface moe-number '((t :inherit font-lock-constant-face))
  "Numbers with their units.")

(defface moe-constant '((t :inherit font-lock-constant-face))
  "True and false.")

(defface moe-word-operator '((t :inherit font-lock-keyword-face))
  "Words of expressions.")

(defface moe-function '((t :inherit font-lock-function-name-face))
  "Functions.")

(defface moe-axis '((t :inherit font-lock-variable-name-face))
  "Names of decided values.")

(defface moe-value '((t :inherit font-lock-constant-face))
  "Words that are the value of something.")

(defvar moe-mode-syntax-table
  (let ((table (make-syntax-table)))
    (modify-syntax-entry ?# "<" table)
    (modify-syntax-entry ?\n ">" table)
    (modify-syntax-entry ?\" "\"" table)
    (modify-syntax-entry ?\\ "\\" table)
    (modify-syntax-entry ?_ "_" table)
    (modify-syntax-entry ?. "_" table)
    (dolist (char '(?+ ?- ?* ?/ ?% ?= ?< ?> ?! ?: ?, ?\; ?&))
      (modify-syntax-entry char "." table))
    (dolist (pair '((?\( . "()") (?\) . ")(") (?\[ . "(]") (?\] . ")[") (?{ . "(}") (?} . "){")))
      (modify-syntax-entry (car pair) (cdr pair) table))
    table)
  "Syntax of moe files.")

;;; Where a word stands

(defun moe--statement-start-p (position)
  "Whether a statement may start at POSITION."
  (save-excursion
    (goto-char position)
    (skip-chars-backward " \t")
    (or (bolp) (memq (char-before) '(?\; ?{)))))

(defun moe--block (position)
  "What surrounds POSITION: `top', `facts', `members', `run', or nil between parentheses or brackets."
  (let ((open (save-excursion (nth 1 (syntax-ppss position)))))
    (cond ((null open) 'top)
          ((eq (char-after open) ?{) (moe--block-of open))
          (t nil))))

(defun moe--block-of (open)
  "What the block whose brace is at OPEN holds."
  (let ((outer (save-excursion (nth 1 (syntax-ppss open)))))
    (if outer
        'facts
      (save-excursion
        (goto-char open)
        (if (re-search-backward (concat "\\(?:^\\|[;}]\\)[ \t]*" (moe--words moe--declarations)) nil t)
            (let ((word (progn (skip-chars-forward "; }\t") (thing-at-point 'symbol t))))
              (cond ((member word moe--facts-blocks) 'facts)
                    ((member word moe--rules-blocks) 'members)
                    (t 'run)))
          'run)))))

(defun moe--starters (block)
  "Words that may start what stands in BLOCK."
  (pcase block
    ('top (append moe--declarations moe--statements))
    ('run moe--statements)
    ('members moe--members)))

(defun moe--options-p (position)
  "Tell whether POSITION is among the words after `vlm'."
  (save-excursion
    (goto-char position)
    (re-search-backward "[;{]\\|^" (line-beginning-position) t)
    (looking-at "[;{]?[ \t]*vlm\\_>[^;}#\n]")))

(defun moe--match-starter (limit)
  "Next word before LIMIT that starts a statement, a declaration or a member."
  (let (found)
    (while (and (not found)
                (re-search-forward (moe--words (append moe--declarations moe--statements moe--members)) limit t))
      (let ((start (match-beginning 0)) (word (match-string-no-properties 0)))
        (setq found (save-match-data
                      (and (moe--statement-start-p start)
                           (member word (moe--starters (moe--block start))))))))
    found))

(defun moe--match-link (limit)
  "Next `x', `first', `of' or `from' before LIMIT that links two parts of a statement."
  (let (found)
    (while (and (not found) (re-search-forward "\\_<\\(?:x\\|first\\|of\\|from\\)\\_>" limit t))
      (let ((start (match-beginning 0)) (word (match-string-no-properties 0)))
        (setq found (save-match-data (moe--link-p word start)))))
    found))

(defun moe--link-p (word start)
  "Whether WORD at START is a link."
  (save-excursion
    (goto-char start)
    (and (memq (moe--block start) '(top run))
         (not (moe--options-p start))
         (looking-back (concat (moe--before word) moe--name "[ \t]+") (line-beginning-position))
         (not (and (equal word "first") (looking-at "first[ \t]*{"))))))

(defun moe--before (word)
  "What stands before the name before WORD."
  (concat "\\(?:^\\|[;{]\\)[ \t]*"
          (pcase word
            ("x" "\\(?:hardware[ \t]+\\)?")
            ("of" "rules[ \t]+")
            ("from" "run[ \t]+")
            (_ ""))))

(defun moe--match-declared (limit)
  "Next name before LIMIT that a declaration gives to something."
  (let ((pattern (concat "\\(?:^\\|;\\)[ \t]*" (moe--words moe--declarations) "[ \t]+\\(" moe--name "\\)"))
        found)
    (while (and (not found) (re-search-forward pattern limit t))
      (setq found (save-match-data (moe--declared-p (match-beginning 1)))))
    found))

(defun moe--declared-p (start)
  "Whether the name at START is that of a declaration."
  (save-excursion
    (goto-char start)
    (and (eq (moe--block start) 'top)
         (let ((word (save-excursion (skip-chars-backward " \t") (thing-at-point 'symbol t))))
           (or (not (member word (append moe--facts-blocks '("profile"))))
               (looking-at (concat moe--name "[ \t]*{")))))))

(defconst moe--number
  (concat "\\_<[0-9]+\\(?:\\.[0-9]+\\)?\\(?:[eE][+-]?[0-9]+\\)?[kMG]?"
          "\\(?:[ \t]*" moe--units
          "\\|%\\(?:[^A-Za-z0-9_(\"[]\\|$\\)"
          "\\|[ \t]+%[ \t]*\\(?:$\\|[#;}),]\\|]\\|" (moe--words moe--clauses) "\\)"
          "\\)\\|\\_<[0-9][A-Za-z0-9_.]*\\(?:[+-][0-9]+\\)?"))

(defun moe--match-number (limit)
  "Next number before LIMIT with its unit; options such as `3d' are none."
  (let (found)
    (while (and (not found) (re-search-forward moe--number limit t))
      (let* ((start (match-beginning 0))
             (end (+ start (moe--number-length (match-string-no-properties 0)))))
        (goto-char end)
        (unless (save-match-data (moe--options-p start))
          (set-match-data (list start end))
          (setq found t))))
    found))

(defun moe--number-length (text)
  "How much of TEXT is the number: what follows a percent sign is not."
  (cond ((string-match "%" text) (match-end 0))
        ((string-match "\\`[0-9][A-Za-z0-9_.]*[eE][+-][0-9]+" text) (length text))
        ((string-match "\\`[0-9][A-Za-z0-9_.]*[+-]" text) (1- (match-end 0)))
        (t (length text))))

(defvar moe-font-lock-keywords
  `((moe--match-starter . 'moe-keyword)
    (moe--match-link . 'moe-link)
    (moe--match-declared 1 'moe-declared)
    (moe--match-number . 'moe-number)
    ("^[ \t]*target[ \t]+[^ \t]+[ \t]+\\([A-Za-z0-9_.]+\\)" 1 'moe-number)
    (,(moe--words moe--clauses) . 'moe-clause)
    (,(moe--words moe--constants) . 'moe-constant)
    (,(moe--words moe--operators) . 'moe-word-operator)
    (,(concat "\\_<\\(" (regexp-opt moe--functions) "\\)[ \t]*(") 1 'moe-function)
    (,(moe--words moe--axes) . 'moe-axis)
    (,(moe--words moe--values) . 'moe-value))
  "What is coloured in moe files.")

;;; Indentation

(defun moe-indent-line ()
  "Indent as `moedsl fmt' does: brackets, and clauses on lines of their own."
  (interactive)
  (let ((column (moe--column)))
    (if (<= (current-column) (current-indentation))
        (indent-line-to column)
      (save-excursion (indent-line-to column)))))

(defun moe--column ()
  "Column of the present line."
  (save-excursion
    (back-to-indentation)
    (let* ((open (nth 1 (syntax-ppss)))
           (base (if open (save-excursion (goto-char open) (current-indentation)) 0))
           (closes (looking-at "[])}]"))
           (clause (looking-at (moe--words moe--clauses))))
      (+ base
         (if (and open (not closes)) moe-indent-offset 0)
         (if clause moe-indent-offset 0)))))

;;;###autoload
(define-derived-mode moe-mode prog-mode "moe"
  "Major mode for run files, models, machines and rules of moedsl."
  (setq-local comment-start "# "
              comment-start-skip "#+[ \t]*"
              comment-end ""
              indent-tabs-mode nil
              indent-line-function #'moe-indent-line
              font-lock-defaults '(moe-font-lock-keywords)
              imenu-generic-expression
              `((nil ,(concat "^" (moe--words moe--declarations) "[ \t]+\\(" moe--name "\\)[^\n]*{") 1))))

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.moe\\'" . moe-mode))

(defvar eglot-server-programs)
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs `(moe-mode . ,(lambda (&rest _) moe-server-command))))

(provide 'moe-mode)
;;; moe-mode.el ends here
