autocmd BufRead,BufNewFile *.moe setfiletype moe
