let found = {}
for [file, places] in items(json_decode(join(readfile('places.json'))))
  execute 'edit' fnameescape(file)
  let found[file] = map(places, {_, at -> synIDattr(synID(at[0], at[1], 1), 'name')})
endfor
call writefile([json_encode(found)], 'groups.json')
qall!
