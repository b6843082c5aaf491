package page

import "github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"

// Text is a text in English, which pages show in the person's language. A nil Text is none.
type Text struct {
	format, plural string
	args           []any
	number         int // if there is a plural
}

// T returns a text. Its arguments are those of [fmt.Sprintf], and may be texts too.
func T(format string, args ...any) *Text { return &Text{format: format, args: args} }

// Plural returns the text for a number, which is the only argument of both forms.
func Plural(one, other string, number int) *Text {
	return &Text{format: one, plural: other, number: number, args: []any{number}}
}

// And lists texts, such as "read, search and create". It returns nil for none.
func And(items ...*Text) *Text {
	if len(items) == 0 {
		return nil
	}
	last := len(items) - 1
	if last == 0 {
		return items[0]
	}
	list := items[0]
	for _, item := range items[1:last] {
		list = T("%s, %s", list, item)
	}
	return T("%s and %s", list, items[last])
}

// Problem returns what an error tells the person ([oauth2.StartAgain]).
func Problem(e *oauth2.Error) *Text { return &Text{format: e.Description} }
