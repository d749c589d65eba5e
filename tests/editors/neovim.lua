-- Uses the language server as a person does, in the Neovim that runs this, and writes down what each step showed.
-- Environment: FILES a folder for files, STEPS which steps to take, RESULTS where the JSON goes.
local results = {}
local function wait(what, ready)
  if not vim.wait(60000, ready, 20) then error(what .. ' did not come') end
end

local function client_of(buffer)
  for id, client in pairs(vim.lsp.buf_get_clients(buffer)) do
    if client.name == 'moedsl' and client.initialized then return id end
  end
end

-- Opens a new file; the plugin under editors/nvim attaches the server.
local function open(name, lines)
  local path = vim.env.FILES .. '/' .. name
  vim.fn.writefile(lines, path)
  vim.cmd('edit ' .. path)
  local buffer = vim.api.nvim_get_current_buf()
  wait('the client', function() return client_of(buffer) end)
  return buffer
end

local function text(buffer) return vim.api.nvim_buf_get_lines(buffer or 0, 0, -1, false) end

local function floating()
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(window).relative ~= '' then return window end
  end
end

local steps = {}

function steps.diagnostics()
  local buffer = open('misspelt.moe', { 'model qwen3_30b_a3', 'h100 x 16', 'seq 4k' })
  wait('a diagnostic', function() return #vim.diagnostic.get(buffer) > 0 end)
  local found = vim.diagnostic.get(buffer)[1]
  return { message = found.message, line = found.lnum, from = found.col, to = found.end_col }
end

function steps.hover()
  open('hover.moe', { 'model qwen3_30b_a3b', 'h100 x 16', 'seq 4k' })
  vim.api.nvim_win_set_cursor(0, { 1, 8 })
  vim.lsp.buf.hover()
  wait('a hover', floating)
  local window = floating()
  local shown = text(vim.api.nvim_win_get_buf(window))
  vim.api.nvim_win_close(window, true)
  return shown
end

function steps.completion()
  open('completion.moe', { 'model qwen3_', 'h100 x 16' })
  vim.bo.omnifunc = 'v:lua.vim.lsp.omnifunc'
  local words, escape = {}, vim.api.nvim_replace_termcodes('<Esc>', true, false, true)
  local rounds, timer = 0, vim.loop.new_timer()
  timer:start(50, 50, vim.schedule_wrap(function() -- runs while Insert mode waits for keys
    words = vim.tbl_map(function(item) return item.word end, vim.fn.complete_info({ 'items' }).items)
    rounds = rounds + 1
    if #words == 0 and rounds < 1200 then return end
    timer:stop()
    vim.api.nvim_feedkeys(escape, 'n', false)
  end))
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes('A<C-x><C-o>', true, false, true), 'nx!', false)
  return words
end

function steps.definition()
  open('definition.moe', { 'model qwen3_30b_a3b', 'h100 x 16', 'seq 4k' })
  vim.api.nvim_win_set_cursor(0, { 1, 8 })
  vim.lsp.buf.definition()
  wait('the declaration', function() return not vim.api.nvim_buf_get_name(0):find('definition.moe') end)
  return { file = vim.api.nvim_buf_get_name(0), line = vim.api.nvim_get_current_line() }
end

function steps.rename()
  local buffer = open('rename.moe', { 'rules house {', '  let room = 2', '}', 'qwen3_30b_a3b; h100 x 16', 'require spare: dp >= room' })
  vim.api.nvim_win_set_cursor(0, { 2, 7 })
  vim.lsp.buf.rename('slack')
  wait('the new name', function() return text(buffer)[5]:find('slack') end)
  return text(buffer)
end

function steps.format()
  local buffer = open('format.moe', { 'model   qwen3_30b_a3b', 'h100   x  16', 'pin tp = 1' })
  if vim.lsp.buf.format then vim.lsp.buf.format({ timeout_ms = 60000 }) else vim.lsp.buf.formatting_sync(nil, 60000) end
  return text(buffer)
end

function steps.inlay_hints()
  local buffer = open('hints.moe', { 'model qwen3_30b_a3b', 'h100 x 16', 'seq 4k', 'fit first' })
  vim.lsp.inlay_hint.enable(true, { bufnr = buffer })
  wait('a hint', function() return #vim.lsp.inlay_hint.get({ bufnr = buffer }) > 0 end)
  return vim.tbl_map(function(hint)
    local label = hint.inlay_hint.label
    return type(label) == 'string' and label or table.concat(vim.tbl_map(function(part) return part.value end, label))
  end, vim.lsp.inlay_hint.get({ bufnr = buffer }))
end

function steps.semantic_tokens()
  local buffer = open('tokens.moe', { 'model qwen3_30b_a3b', 'h100 x 16', 'seq 4k' })
  wait('a token', function() return #(vim.lsp.semantic_tokens.get_at_pos(buffer, 0, 8) or {}) > 0 end)
  return vim.lsp.semantic_tokens.get_at_pos(buffer, 0, 8)[1].type
end

function steps.quick_fix()
  local buffer = open('fix.moe', { 'model qwen3_30b_a3', 'h100 x 16', 'seq 4k' })
  wait('a diagnostic', function() return #vim.diagnostic.get(buffer) > 0 end)
  vim.api.nvim_win_set_cursor(0, { 1, 8 })
  vim.ui.select = function(choices, options, choose)
    for _, choice in ipairs(choices) do
      local shown = options.format_item and options.format_item(choice) or tostring(choice)
      if shown:find('qwen3_30b_a3b') then return choose(choice) end
    end
    choose(choices[1])
  end
  vim.lsp.buf.code_action()
  wait('the fix', function() return text(buffer)[1] == 'model qwen3_30b_a3b' end)
  return text(buffer)
end

for _, name in ipairs(vim.split(vim.env.STEPS, ' ')) do
  local ok, value = pcall(steps[name])
  results[name] = ok and { shown = value } or { error = tostring(value) }
  vim.cmd('silent! stopinsert | silent! %bwipeout!')
end
vim.fn.writefile({ vim.fn.json_encode(results) }, vim.env.RESULTS)
vim.cmd('qall!')
