package expansion

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// maxWholeSteps bounds the cost of the explanations of a page, as [Options.MaxGathered] does by default.
const maxWholeSteps = 20_000_000

// explain finds a page with explanations.
func (w *Whole) explain(page *foundPage, parts []textindex.Part, f *textindex.Filter, from, to int) error {
	tooMany := func() error { return tooManyExplained(w.definition()) }
	left := maxWholeSteps
	spend := func(steps int) error {
		if left -= steps; left < 0 {
			return tooMany()
		}
		return nil
	}
	found, total, err := explain(parts, f, from, to, tooMany, spend)
	for _, e := range found {
		page.entries, page.explained = append(page.entries, e.hit.Doc), append(page.explained, e.Explanation)
	}
	page.total, page.corrected = total, f.Corrected()
	return err
}

// appendExplained appends an entry as the other server wrote it, with its explanation after its other extensions.
func (e *wholeEntry) appendExplained(dst []byte, x *textindex.Explanation) ([]byte, error) {
	why := newExplanation(x, e.texts)
	r := fhirjson.ReaderOf(e.raw)
	extensions := fhirjson.Array{Name: "extension"}
	var rest []fhirjson.Member
	start := len(dst)
	err := r.Object(func(name []byte) error {
		if string(name) == "extension" {
			return r.Array(func() error {
				value, err := r.Value(0)
				dst = append(extensions.Next(dst), value...)
				return err
			})
		}
		_, err := r.Keep(string(name), &rest)
		return err
	})
	if err != nil {
		return nil, err
	}
	dst = extensions.End(why.append(extensions.Next(dst)))
	dst[start] = '{' // replaces the comma
	for _, m := range rest {
		dst = m.Append(append(dst, ','))
	}
	return append(dst, '}'), nil
}
