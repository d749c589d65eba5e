-- For each place of each file in places.json, the capture that Neovim colours it by; the plugin starts tree-sitter.
local places = vim.json.decode(table.concat(vim.fn.readfile('places.json'), '\n'))
local out = {}
local ok, problem = pcall(function()
  for file, positions in pairs(places) do
    vim.cmd.edit(file)
    local buffer = vim.api.nvim_get_current_buf()
    assert(vim.bo.filetype == 'moe', file .. ' has the filetype ' .. vim.bo.filetype)
    assert(vim.treesitter.highlighter.active[buffer], 'tree-sitter does not run')
    vim.treesitter.get_parser(buffer):parse()
    out[file] = {}
    for i, place in ipairs(positions) do
      local found = 'nothing'
      for _, capture in ipairs(vim.treesitter.get_captures_at_pos(buffer, place[1], place[2])) do
        if capture.lang == 'moe' and capture.capture ~= 'spell' then found = capture.capture end
      end
      out[file][i] = found
    end
  end
  vim.cmd.edit(vim.env.FOLDED)
  vim.wo.foldmethod, vim.wo.foldexpr = 'expr', 'v:lua.vim.treesitter.foldexpr()'
  out.fold = { vim.fn.foldlevel(1), vim.fn.foldlevel(2), vim.fn.foldlevel(vim.fn.line('$')) }
end)
vim.fn.writefile({ vim.json.encode(ok and out or { error = tostring(problem) }) }, 'captures.json')
vim.cmd('qall!')
