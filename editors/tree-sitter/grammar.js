// Generated from grammar/moe.lark by tools/make_editors.py; a rule has the name that it has there.
/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

// A token of src/scanner.c, shown as the text that it stands for.
const scanned = (token, text) => alias(token, text);

module.exports = grammar({
  name: 'moe',

  externals: $ => [
    $.name,
    $._scanned_number,
    $.word,
    $.version,
    $.hub,
    $._newline,
    $._continuation,
    $._lparen,
    $._rparen,
    $._lbracket,
    $._rbracket,
    $._model_word,
    $._hardware_word,
    $._seq_word,
    $._batch_word,
    $._micro_batch_word,
    $._precision_word,
    $._task_word,
    $._adapter_word,
    $._routing_word,
    $._risk_word,
    $._vlm_word,
    $._data_word,
    $._weights_word,
    $._pin_word,
    $._require_word,
    $._prefer_word,
    $._allow_word,
    $._sweep_word,
    $._isolate_word,
    $._workflow_word,
    $._set_word,
    $._lr_word,
    $._schedule_word,
    $._checkpoints_word,
    $._log_word,
    $._wandb_word,
    $._target_word,
    $._resilience_word,
    $._for_word,
    $._cluster_word,
    $._calibration_word,
    $._document_word,
    $._rules_word,
    $._profile_word,
    $._run_word,
    $._use_word,
    $._let_word,
    $._default_word,
    $._candidates_word,
    $._derive_word,
    $._env_word,
    $._rank_word,
    $._measured_word,
    $._symptom_word,
    $._effect_word,
    $._of_word,
    $._from_word,
    $._near_word,
    $._first_word,
    $._x_word,
    $._in_word,
    $._because_word,
    $._cite_word,
    $._worth_word,
    $._confirm_word,
    $._fix_word,
    $._since_word,
    $._until_word,
    $._when_word,
    $._if_word,
    $._then_word,
    $._else_word,
    $._and_word,
    $._or_word,
    $._not_word,
    $._true_word,
    $._false_word,
  ],

  extras: $ => [/[ \t\r\f]/, $.comment, $._continuation],

  rules: {
    module: $ => seq(optional($._sep), repeat(seq($._item, $._sep)), optional($._item)),

    _item: $ => choice($._stmt, $._decl),

    _sep: $ => repeat1(choice($._newline, ';')),

    _stmt: $ => choice(
      $.bare_stmt,
      $.model_stmt,
      $.hardware_stmt,
      $.seq_stmt,
      $.batch_stmt,
      $.micro_batch_stmt,
      $.precision_stmt,
      $.task_stmt,
      $.adapter_stmt,
      $.routing_stmt,
      $.risk_stmt,
      $.phase_stmt,
      $.vlm_stmt,
      $.data_stmt,
      $.weights_stmt,
      $.pin_stmt,
      $.require,
      $.prefer,
      $.allow_stmt,
      $.sweep_stmt,
      $.isolate_stmt,
      $.workflow_stmt,
      $.set_stmt,
      $.lr_stmt,
      $.schedule_stmt,
      $.checkpoints_stmt,
      $.log_stmt,
      $.wandb_stmt,
      $.target_stmt,
      $.resilience_stmt,
      $.for_stmt,
    ),

    bare_stmt: $ => choice(seq($.name, optional(seq(scanned($._x_word, 'x'), $.number))), $.hub),

    model_stmt: $ => seq(scanned($._model_word, 'model'), choice($.name, $.hub, $.string)),

    hardware_stmt: $ => seq(
      scanned($._hardware_word, 'hardware'),
      $.name,
      optional(seq(scanned($._x_word, 'x'), $.number)),
    ),

    seq_stmt: $ => seq(scanned($._seq_word, 'seq'), $.number),

    batch_stmt: $ => seq(scanned($._batch_word, 'batch'), optional(scanned($._near_word, 'near')), $.number),

    micro_batch_stmt: $ => seq(scanned($._micro_batch_word, 'micro_batch'), $.number),

    precision_stmt: $ => seq(scanned($._precision_word, 'precision'), $.name),

    task_stmt: $ => seq(scanned($._task_word, 'task'), $.name),

    adapter_stmt: $ => seq(scanned($._adapter_word, 'adapter'), $.name, repeat($.binding)),

    routing_stmt: $ => seq(scanned($._routing_word, 'routing'), $.name),

    risk_stmt: $ => seq(scanned($._risk_word, 'risk'), $.name),

    phase_stmt: $ => seq(choice($.name, scanned($._profile_word, 'profile')), scanned($._first_word, 'first')),

    vlm_stmt: $ => seq(scanned($._vlm_word, 'vlm'), repeat($.word)),

    data_stmt: $ => seq(
      scanned($._data_word, 'data'),
      choice(seq($.name, optional($.string)), $.string),
      repeat($.binding),
    ),

    weights_stmt: $ => seq(scanned($._weights_word, 'weights'), optional($.name), $.string),

    pin_stmt: $ => seq(scanned($._pin_word, 'pin'), repeat1($.binding)),

    require: $ => seq(
      scanned($._require_word, 'require'),
      optional(seq($.name, ':')),
      $._expr,
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    prefer: $ => seq(
      scanned($._prefer_word, 'prefer'),
      optional(seq($.name, ':')),
      $._expr,
      optional($.worth),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    allow_stmt: $ => seq(scanned($._allow_word, 'allow'), $.name, optional($.because)),

    sweep_stmt: $ => seq(
      scanned($._sweep_word, 'sweep'),
      $.name,
      scanned($._in_word, 'in'),
      $._expr,
      repeat(seq(',', $._expr)),
    ),

    isolate_stmt: $ => seq(
      scanned($._isolate_word, 'isolate'),
      $.name,
      scanned($._in_word, 'in'),
      $._expr,
      repeat(seq(',', $._expr)),
    ),

    workflow_stmt: $ => scanned($._workflow_word, 'workflow'),

    set_stmt: $ => seq(scanned($._set_word, 'set'), $.name, '=', $._expr),

    lr_stmt: $ => seq(scanned($._lr_word, 'lr'), optional($._value), repeat($.binding)),

    schedule_stmt: $ => seq(scanned($._schedule_word, 'schedule'), optional($._value), repeat($.binding)),

    checkpoints_stmt: $ => seq(
      scanned($._checkpoints_word, 'checkpoints'),
      optional($._value),
      repeat($.binding),
    ),

    log_stmt: $ => seq(scanned($._log_word, 'log'), optional($._value), repeat($.binding)),

    wandb_stmt: $ => seq(scanned($._wandb_word, 'wandb'), optional($._value), repeat($.binding)),

    _value: $ => choice($.number, $.name, $.string),

    target_stmt: $ => seq(scanned($._target_word, 'target'), $.name, $.version),

    resilience_stmt: $ => seq(scanned($._resilience_word, 'resilience'), $.name, repeat($.binding)),

    for_stmt: $ => seq(scanned($._for_word, 'for'), $.word, $.name),

    binding: $ => seq($.name, '=', $._sum),

    worth: $ => seq(scanned($._worth_word, 'worth'), $.number),

    because: $ => seq(scanned($._because_word, 'because'), $.string),

    confirm: $ => seq(scanned($._confirm_word, 'confirm'), $.string),

    fix: $ => seq(scanned($._fix_word, 'fix'), $.string),

    cite: $ => seq($.name, $.string),

    _decl: $ => choice(
      $.hardware_decl,
      $.model_decl,
      $.cluster_decl,
      $.calibration_decl,
      $.document_decl,
      $.rules_decl,
      $.profile_decl,
      $.run_decl,
      $.use_decl,
    ),

    hardware_decl: $ => seq(
      scanned($._hardware_word, 'hardware'),
      $.name,
      optional(seq(scanned($._from_word, 'from'), $.name)),
      $._facts,
    ),

    model_decl: $ => seq(scanned($._model_word, 'model'), $.name, $._facts),

    cluster_decl: $ => seq(scanned($._cluster_word, 'cluster'), $.name, $._facts),

    calibration_decl: $ => seq(scanned($._calibration_word, 'calibration'), $.name, $._facts),

    document_decl: $ => seq(scanned($._document_word, 'document'), $.name, $._facts),

    rules_decl: $ => seq(
      scanned($._rules_word, 'rules'),
      $.name,
      optional($.subject),
      optional($.when),
      seq(optional($.since), optional($.until)),
      '{',
      optional($._sep),
      repeat(seq($._member, $._sep)),
      optional($._member),
      '}',
    ),

    subject: $ => seq(scanned($._of_word, 'of'), $.name),

    profile_decl: $ => seq(scanned($._profile_word, 'profile'), choice($.name, $.first_name), $._body),

    first_name: $ => scanned($._first_word, 'first'),

    run_decl: $ => seq(
      scanned($._run_word, 'run'),
      $.name,
      optional(seq(scanned($._from_word, 'from'), $.name)),
      $._body,
    ),

    use_decl: $ => seq(scanned($._use_word, 'use'), $.string),

    _body: $ => seq('{', optional($._sep), repeat(seq($._stmt, $._sep)), optional($._stmt), '}'),

    _facts: $ => seq('{', optional($._sep), repeat(seq($.fact_line, $._sep)), optional($.fact_line), '}'),

    fact_line: $ => seq(
      repeat($.value_fact),
      choice($.value_fact, $.bindings_fact, $.block_fact),
      repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite))),
    ),

    value_fact: $ => seq($.name, $._sum),

    bindings_fact: $ => seq($.name, repeat1($.binding)),

    block_fact: $ => seq($.name, $._facts),

    _member: $ => choice(
      $.law,
      $.advice,
      $.let,
      $.default,
      $.candidates,
      $.derive,
      $.env,
      $.rank,
      $.measured,
      $.symptom,
      $.effect,
    ),

    law: $ => seq(
      scanned($._require_word, 'require'),
      $.name,
      ':',
      $._expr,
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    advice: $ => seq(
      scanned($._prefer_word, 'prefer'),
      $.name,
      ':',
      $._expr,
      optional($.worth),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    let: $ => seq(
      scanned($._let_word, 'let'),
      $.name,
      '=',
      $._expr,
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    default: $ => seq(
      scanned($._default_word, 'default'),
      $.name,
      '=',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    candidates: $ => seq(
      scanned($._candidates_word, 'candidates'),
      $.name,
      '=',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    derive: $ => seq(
      scanned($._derive_word, 'derive'),
      $.name,
      '=',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    env: $ => seq(
      scanned($._env_word, 'env'),
      $.name,
      '=',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    rank: $ => seq(
      scanned($._rank_word, 'rank'),
      $.name,
      ':',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    measured: $ => seq(
      scanned($._measured_word, 'measured'),
      $.name,
      ':',
      $._expr,
      optional($.when),
      seq(optional($.since), optional($.until)),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    symptom: $ => seq(
      scanned($._symptom_word, 'symptom'),
      $.name,
      ':',
      $.string,
      optional($.confirm),
      optional($.fix),
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    effect: $ => seq(
      scanned($._effect_word, 'effect'),
      $.name,
      '=',
      $.name,
      seq(optional($.because), repeat(seq(scanned($._cite_word, 'cite'), repeat1($.cite)))),
    ),

    when: $ => seq(scanned($._when_word, 'when'), $._expr),

    since: $ => seq(scanned($._since_word, 'since'), $.version),

    until: $ => seq(scanned($._until_word, 'until'), $.version),

    _expr: $ => choice($.if_else, $._implies),

    if_else: $ => seq(
      scanned($._if_word, 'if'),
      $._expr,
      scanned($._then_word, 'then'),
      $._expr,
      scanned($._else_word, 'else'),
      $._expr,
    ),

    _implies: $ => choice($._or, $.implication),

    implication: $ => seq($._or, '=>', $._expr),

    _or: $ => choice($._and, $.disjunction),

    disjunction: $ => seq($._or, scanned($._or_word, 'or'), $._and),

    _and: $ => choice($._not, $.conjunction),

    conjunction: $ => seq($._and, scanned($._and_word, 'and'), $._not),

    _not: $ => choice($._comparison, $.negation),

    negation: $ => seq(scanned($._not_word, 'not'), $._not),

    _comparison: $ => choice($._sum, $.comparison),

    comparison: $ => seq(
      $._sum,
      choice('==', '!=', '<', '<=', '>', '>=', scanned($._in_word, 'in'), seq(scanned($._not_word, 'not'), scanned($._in_word, 'in'))),
      $._sum,
    ),

    _sum: $ => choice($._product, $.addition),

    addition: $ => seq($._sum, choice('+', '-'), $._product),

    _product: $ => choice($._unary, $.multiplication),

    multiplication: $ => seq($._product, choice('*', '/', '//', '%'), $._unary),

    _unary: $ => choice($._atom, $.minus),

    minus: $ => seq('-', $._unary),

    _atom: $ => choice($.number, $.string, $.bool, $.name, $.call, $.paren, $.list),

    call: $ => seq(
      $.name,
      scanned($._lparen, '('),
      optional(seq($._expr, repeat(seq(',', $._expr)))),
      scanned($._rparen, ')'),
    ),

    paren: $ => seq(scanned($._lparen, '('), $._expr, scanned($._rparen, ')')),

    list: $ => seq(
      scanned($._lbracket, '['),
      optional(seq($._expr, repeat(seq(',', $._expr)), optional(','))),
      scanned($._rbracket, ']'),
    ),

    bool: $ => choice(scanned($._true_word, 'true'), scanned($._false_word, 'false')),

    number: $ => choice($._scanned_number, $._plain_number),

    _plain_number: $ => token(/[0-9]+(\.[0-9]+)?([eE][+-][0-9]+|([eE][0-9]+)?[kMG]?)/),

    string: $ => token(/"([^"\\\n]|\\[^\n])*"/),

    comment: $ => token(/#[^\n]*/),
  },
});
