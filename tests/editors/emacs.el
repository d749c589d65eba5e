;;; Uses the language server through eglot, in the batch Emacs that loads this, and writes down what each step showed.
;; Environment: FILES a folder for files, RESULTS where the JSON goes.  -*- lexical-binding: t -*-
(require 'eglot)
(require 'flymake)
(require 'json)
(require 'moe-mode)

(defvar results nil)

;; Emacs itself gives up an answer after ten seconds, and a server that starts after thirty.
(setq jsonrpc-default-request-timeout 60
      eglot-connect-timeout 60
      eglot-sync-connect t)

(defun until (what ready)
  "The first value of READY that is not nil; an error that names WHAT where none comes in a minute."
  (let ((end (+ (float-time) 60)) value)
    (while (not (setq value (funcall ready)))
      (when (> (float-time) end) (error "%s did not come" what))
      (accept-process-output nil 0.05)
      (sit-for 0.01))
    value))

(defun opened (name text)
  "A buffer of a new file that the server looks after."
  (let ((file (expand-file-name name (getenv "FILES"))))
    (write-region text nil file)
    (let ((buffer (find-file-noselect file)))
      (switch-to-buffer buffer)
      (unless (eq major-mode 'moe-mode) (error "%s is in %s" name major-mode))
      (apply #'eglot (eglot--guess-contact))
      (until "the server" #'eglot-current-server)
      buffer)))

(defmacro step (name &rest body)
  `(push (cons ,name (condition-case problem (list (cons 'shown (progn ,@body)))
                       (error (list (cons 'error (error-message-string problem))))))
         results))

(step "diagnostics"
  (opened "misspelt.moe" "model qwen3_30b_a3\nh100 x 16\nseq 4k\n")
  (flymake-start)
  (let ((found (car (until "a diagnostic" #'flymake-diagnostics))))
    (list (flymake-diagnostic-text found) (flymake-diagnostic-beg found) (flymake-diagnostic-end found))))

(step "inlay_hints"
  (opened "hints.moe" "model qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n")
  (until "a hint"
         (lambda ()
           (eglot--update-hints-1 (point-min) (point-max))
           (accept-process-output nil 0.2)
           (let ((shown (mapconcat (lambda (overlay)
                                     (format "%s" (or (overlay-get overlay 'before-string)
                                                      (overlay-get overlay 'after-string) "")))
                                   (overlays-in (point-min) (1+ (point-max))) " ")))
             (and (string-match-p "ep=" shown) (substring-no-properties shown))))))

(step "completion"
  (opened "completion.moe" "model qwen3_\nh100 x 16\n")
  (goto-char (point-min))
  (end-of-line)
  (let ((table (nth 2 (eglot-completion-at-point))))
    (vconcat (mapcar #'substring-no-properties (all-completions "qwen3_" table)))))

(step "definition"
  (opened "definition.moe" "model qwen3_30b_a3b\nh100 x 16\nseq 4k\n")
  (goto-char 9)
  (call-interactively #'xref-find-definitions)
  (buffer-substring (line-beginning-position) (line-end-position)))

(step "format"
  (opened "format.moe" "model   qwen3_30b_a3b\nh100   x  16\npin tp = 1\n")
  (eglot-format-buffer)
  (buffer-string))

(step "rename"
  (opened "rename.moe" "rules house {\n  let room = 2\n}\nqwen3_30b_a3b; h100 x 16\nrequire spare: dp >= room\n")
  (search-forward "room")
  (backward-char 2)
  (let ((eglot-confirm-server-edits nil)) (eglot-rename "slack"))
  (buffer-string))

(step "hover"
  (opened "hover.moe" "model qwen3_30b_a3b\nh100 x 16\nseq 4k\n")
  (goto-char 9)
  (let (shown)
    (until "a hover" (lambda ()
                       (eglot-hover-eldoc-function (lambda (text &rest _) (setq shown text)))
                       (accept-process-output nil 0.2)
                       shown))
    (substring-no-properties shown)))

(with-temp-file (getenv "RESULTS")
  (insert (json-encode results)))
(kill-emacs 0)
