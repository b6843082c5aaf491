package page

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
)

// translation is a language and its texts.
type translation struct {
	tag   language.Tag
	texts map[string]string // by their English, plurals by that of the other form
	ones  map[string]string // the forms for one of plurals, by the English of the other form
}

// functions are what the templates of this language use.
func (l *translation) functions() template.FuncMap {
	return template.FuncMap{
		"t": func(text any, args ...any) any {
			if made, ok := text.(*Text); ok {
				return l.translate(made)
			}
			return l.translate(&Text{format: text.(string), args: args})
		},
		"n":        func(one, other string, number int) any { return l.translate(Plural(one, other, number)) },
		"sentence": func(x *Text) string { return capitalize(fmt.Sprint(l.translate(x))) },
		"strong":   strong,
	}
}

// strong marks what matters in a text. It is the only markup that texts contain.
func strong(text string) template.HTML {
	return template.HTML("<strong>" + template.HTMLEscapeString(text) + "</strong>")
}

func capitalize(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// translate returns a string, or HTML if an argument is.
func (l *translation) translate(x *Text) any {
	format, args, markup := l.format(x), make([]any, len(x.args)), false
	for i, arg := range x.args {
		args[i] = l.argument(arg)
		_, isMarkup := args[i].(template.HTML)
		markup = markup || isMarkup
	}
	if len(args) == 0 { // of an error, for example: it may contain percent signs
		return format
	}
	if !markup {
		return fmt.Sprintf(format, args...)
	}
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	return template.HTML(fmt.Sprintf(template.HTMLEscapeString(format), args...))
}

// format returns a text's format in the language. Without one it is the English, which is
// better than none.
func (l *translation) format(x *Text) string {
	if x.plural == "" {
		return cmp.Or(l.texts[x.format], x.format)
	}
	if l.isOne(x.number) {
		return cmp.Or(l.ones[x.plural], x.format)
	}
	return cmp.Or(l.texts[x.plural], x.plural)
}

func (l *translation) isOne(number int) bool {
	return plural.Cardinal.MatchPlural(l.tag, number, 0, 0, 0, 0) == plural.One
}

func (l *translation) argument(arg any) any {
	switch arg := arg.(type) {
	case *Text:
		return l.translate(arg)
	case time.Duration:
		return l.translate(wait(arg))
	}
	return arg
}

// wait says how long to wait. It rounds up, so that nobody tries again too early.
func wait(d time.Duration) *Text {
	seconds := int(math.Ceil(d.Seconds()))
	switch minutes := (seconds + 59) / 60; {
	case seconds == 1:
		return T("a second")
	case seconds < 60:
		return T("%d seconds", seconds)
	case minutes == 1:
		return T("a minute")
	default:
		return T("%d minutes", minutes)
	}
}
