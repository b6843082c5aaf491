package front

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// write is a request that may change definitions at the FHIR server behind.
type write struct {
	front     *Front
	reference string // type and id, where the path has them
	whole     bool   // the body is the new definition
	batch     bool   // the body says what is written
	body      *writtenBody
}

// readingOperations change nothing, as FHIR and its terminology servers define them. Any other operation, such as
// $import, may change definitions.
var readingOperations = []string{
	"$expand", "$validate-code", "$batch-validate-code", "$lookup", "$subsumes", "$find-matches", "$translate", "$closure",
	"$validate", "$meta", "$versions", "$convert", "$export", "$everything", "$diff",
}

// writeOf returns the write that a request is; nil: it is none. The path is resolved and compared without regard to
// case, since some servers do so.
func (f *Front) writeOf(r *http.Request) *write {
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete {
		return nil
	}
	below, within := cutPrefixFold(path.Clean(r.URL.Path)+"/", f.options.Base+"/")
	parts := strings.Split(strings.TrimSuffix(below, "/"), "/")
	last := parts[len(parts)-1]
	kind := slices.IndexFunc(definitionTypes, func(name string) bool { return strings.EqualFold(name, parts[0]) })
	switch {
	case !within, last == "_search":
		return nil
	case parts[0] == "", parts[0] == "$graphql": // whose body says what it changes
		return &write{front: f, batch: true, body: newWrittenBody(r, parts[0] == "")}
	case kind < 0 && parts[0] != last, kind < 0 && last[0] != '$', slices.Contains(readingOperations, last):
		return nil
	case last[0] == '$':
		return &write{front: f}
	}
	w := &write{front: f, body: newWrittenBody(r, false)}
	if len(parts) > 1 {
		w.reference = definitionTypes[kind] + "/" + parts[1]
	}
	w.whole = r.Method == http.MethodPost || r.Method == http.MethodPut && w.reference != ""
	return w
}

func cutPrefixFold(s, prefix string) (after string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// pass has the next handler do a write. What it changes is forgotten before the client hears that it was done,
// and again after, since answers may have been made in between.
func (c *write) pass(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	answer := &responseWriter{ResponseWriter: w, begins: func(status int) {
		if mayBeDone(status) {
			c.forget()
		}
	}}
	err := next.ServeHTTP(answer, r)
	status := 0
	switch {
	case err == nil && answer.final:
		status = answer.status
	case err != nil && !answer.final:
		status = c.front.host.Server.Status(err)
	}
	if status == 0 || mayBeDone(status) {
		c.forget()
	}
	return err
}

// mayBeDone reports whether a write with this status may have been done.
func mayBeDone(status int) bool { return status < 400 || status >= 500 }

// forget ends the answers that depend on what was written, wherever they are stored.
func (c *write) forget() { c.front.host.Written(c.names()) }

// names returns the canonical and the reference of what was written. It reports whether they are known for sure.
func (c *write) names() (names []string, sure bool) {
	if c.batch {
		return nil, !c.body.mentions()
	}
	if c.reference != "" {
		names = append(names, c.reference)
	}
	if !c.whole {
		return names, c.reference != ""
	}
	head, ok := c.body.head()
	return append(names, head.URL), ok && head.URL != ""
}
