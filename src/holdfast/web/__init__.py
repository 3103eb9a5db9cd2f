"""The debugger in the browser: a server of JSON over `views` and `history`, and a page.

Internal. It uses every room below; `holdfast ui` of the command line starts it. It keeps nothing
but what is in the store. Each module answers one kind of question: `tasks` lists them, `task` is
one task, `past` goes back in time, `talks` are conversations, `needs` is the inbox, `fleet` has the
figures, `actions` are what people do, `live` is what is new, `export` is a file to keep.

Read `server` first: it has the table of all addresses. `guard` stands before all of them and says
who may come in. `static` holds the page, built from `web/` at the root of the repository.
"""
