; The pattern of a symptom is a regular expression.
((symptom
  ":"
  . (string) @injection.content)
  (#offset! @injection.content 0 1 0 -1)
  (#set! injection.language "regex"))

((comment) @injection.content
  (#set! injection.language "comment"))
