package postgresstore

import (
	_ "embed"
	"strings"
)

//go:embed schema.sql
var schema string

// statements are those of a table.
type statements struct {
	schema, do, get, sweep, count string
	page, changes                 string
	table, channel                string
}

func statementsFor(table string) statements {
	bare := table[strings.LastIndex(table, ".")+1:]
	name := strings.NewReplacer(
		"{table}", table, "{do}", table+"_do_1", "{get}", table+"_get_1", "{sweep}", table+"_sweep_1",
		"{count}", table+"_count_1", "{expires}", bare+"_expires", "{xid}", bare+"_xid",
	).Replace
	return statements{
		table: table, channel: bare, schema: name(schema),
		do:    name("CALL {do}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, NULL, NULL)"),
		get:   name("SELECT {get}($1)"),
		sweep: name("SELECT {sweep}($1)"),
		count: name("SELECT entries, exact FROM {count}()"),
		page:  name(pageQuery), changes: name(changesQuery),
	}
}
