package expand

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// searchReport shows what a search found to a person: a table in the order of the answer, with a heading for each rule.
type searchReport struct {
	*expansion.Expansion
	text     strings.Builder
	codes    []string
	displays []string
}

// widestColumn is up to how many characters a column is as wide as its widest text.
const widestColumn = 60

func (r *searchReport) write(out io.Writer) error {
	for _, c := range r.Corrections() {
		r.line("%s is nowhere, and was read as %s", c.Typed, strings.Join(c.Read, ", "))
	}
	if r.Total() == 0 {
		r.line("Nothing was found.")
	} else {
		r.line("%d of %d found", r.Len(), r.Total())
	}
	r.readCodes()
	place, code, display := len(fmt.Sprint(len(r.codes))), widest(r.codes), widest(r.displays)
	tier := 0
	for i := range r.codes {
		e, _ := r.Explanation(i) // always asked for
		if e.Tier != tier {
			tier = e.Tier
			r.line("\n%s", e.Rule)
		}
		r.line("%*d  %-*s  %-*s  %s", place, i+1, code, r.codes[i], display, r.displays[i], notes(&e))
	}
	_, err := io.WriteString(out, r.text.String())
	return err
}

func (r *searchReport) line(format string, about ...any) {
	r.text.WriteString(strings.TrimRight(fmt.Sprintf(format, about...), " ") + "\n")
}

// readCodes reads codes and displays; codes of several code systems as system|code.
func (r *searchReport) readCodes() {
	systems := map[string]bool{}
	for c := range r.Codes() {
		systems[c.System] = true
	}
	for c := range r.Codes() {
		code := c.Code
		if len(systems) > 1 {
			code = c.System + "|" + code
		}
		r.codes, r.displays = append(r.codes, code), append(r.displays, c.Display)
	}
}

// widest returns the width of a column.
func widest(texts []string) (width int) {
	for _, text := range texts {
		width = max(width, utf8.RuneCountInString(text))
	}
	return min(width, widestColumn)
}

// notes says what decided, and what was found beside the display.
func notes(e *expansion.Explanation) string {
	var list []string
	if e.After != "" {
		list = append(list, e.After)
	}
	for _, d := range e.Designations {
		found := fmt.Sprintf("has %q", d.Value)
		if d.Language != "" {
			found += " (" + d.Language + ")"
		}
		list = append(list, found)
	}
	for _, synonym := range e.Synonyms {
		list = append(list, fmt.Sprintf("by the synonym %q", synonym))
	}
	return strings.Join(list, "; ")
}
