package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// testQuery is a query with its wanted codes.
type testQuery struct {
	query    string
	wanted   []string // wanted codes; A00* matches each selectable code with this prefix
	category string
	source   string
}

// wants reports whether a hit is wanted. A pattern does not match a code that is not selectable.
func (q *testQuery) wants(hit expansion.Code) bool {
	for _, w := range q.wanted {
		prefix, below := strings.CutSuffix(w, "*")
		if w == hit.Code || below && !hit.Abstract && strings.HasPrefix(hit.Code, prefix) {
			return true
		}
	}
	return false
}

// list is a list of queries for one terminology.
type list struct {
	terminology string
	questions   []testQuery
}

func readList(name string) (*list, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	l, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// parse parses a list. Duplicate queries are an error, because they would be counted twice.
func parse(text string) (*list, error) {
	l, seen := &list{}, map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		if name, ok := strings.CutPrefix(line, "#! "); ok {
			l.terminology = strings.TrimSpace(name)
		}
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 4 {
			return nil, fmt.Errorf("line %d: %d columns, want query, codes, category and source", n+1, len(columns))
		}
		q := testQuery{query: columns[0], wanted: strings.Fields(columns[1]), category: columns[2], source: columns[3]}
		switch {
		case q.query == "" || len(q.wanted) == 0 || q.category == "" || q.source == "":
			return nil, fmt.Errorf("line %d: an empty column", n+1)
		case seen[q.query]:
			return nil, fmt.Errorf("line %d: %q a second time", n+1, q.query)
		}
		seen[q.query] = true
		l.questions = append(l.questions, q)
	}
	if l.terminology == "" || len(l.questions) == 0 {
		return nil, fmt.Errorf("want a line with #! and the name of a terminology, and queries")
	}
	return l, nil
}
