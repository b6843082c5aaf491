package enforce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// bundle is a Bundle, of which the resources stay text.
type bundle struct {
	resourceType string
	kind         string // Bundle.type
	total        int    // -1 if it is not told
	links        links
	entries      []entry
}

// entry is a Bundle.entry.
type entry struct {
	fullURL  string
	resource []byte
	parsed   resource.Resource  // if it was read to be judged
	ranks    []searchparam.Rank // by the keys of _sort, if they were asked for
	mode     string             // search.mode
	search   []byte
	request  []byte
	response []byte
}

const (
	usualEntries = 50   // of a page
	mostEntries  = 1000 // of a list that is kept
)

// entryLists are lists of entries, of which a few are kept, and no long ones.
var entryLists = sync.Pool{New: func() any { return new([]entry) }}

// newEntries is an empty list with room for the entries of the usual page.
func newEntries() []entry {
	return slices.Grow(*entryLists.Get().(*[]entry), usualEntries)
}

// giveBackEntries keeps a list for others. Nothing of what is in it may be in use any more.
func giveBackEntries(list []entry) {
	if clear(list); cap(list) <= mostEntries {
		list = list[:0]
		entryLists.Put(&list)
	}
}

// parseBundle reads a Bundle of the FHIR server's, or what else it answered with instead. Members that say nothing to
// us are left out: what is not understood is not passed on.
func parseBundle(text []byte) (*bundle, error) {
	r := bundleReader{bundle: &bundle{total: -1}, c: rawjson.NewCursor(text).AllowDuplicates()}
	return r.read()
}

// parseJudged is parseBundle with all resources read, and no name twice in an object. The entries can be given back.
func (to addresses) parseJudged(text []byte) (*bundle, error) {
	r := bundleReader{
		bundle: &bundle{total: -1, entries: newEntries()},
		c:      rawjson.NewCursor(text), judged: true,
	}
	r.resources = resource.NewReader(r.c, text, to.base)
	return r.read()
}

// bundleOf reads the answer to a search to what the client has sent.
func (to addresses) bundleOf(a *answer, judged bool, sent said) (*bundle, error) {
	if a.status/100 == 5 || a.status == http.StatusTooManyRequests {
		return nil, failed(a)
	}
	if !a.succeeded() {
		refusal := invalid(errSearch, "The FHIR server refuses the search (%d).", a.status)
		refusal.Description = explained(refusal.Description, a, sent)
		return nil, refusal
	}
	if err := a.requireJSON(); err != nil {
		return nil, err
	}
	read := parseBundle
	if judged {
		read = to.parseJudged
	}
	b, err := read(a.body)
	if err != nil {
		return nil, withheld(err)
	}
	return b, nil
}

// bundleReader reads a Bundle in one pass.
type bundleReader struct {
	*bundle
	c         *rawjson.Cursor
	resources *resource.Reader // if they are judged
	judged    bool
}

func (r *bundleReader) read() (*bundle, error) {
	err := r.c.Object(r.member)
	if err == nil {
		err = r.c.End()
	}
	if err == nil && r.resourceType != "Bundle" {
		err = fmt.Errorf("resourceType %q where a Bundle should be", r.resourceType)
	}
	return r.bundle, err
}

func (r *bundleReader) member(name []byte) (err error) {
	switch string(name) {
	case "resourceType":
		r.resourceType, err = r.c.Text()
	case "type":
		r.kind, err = r.c.Text()
	case "total":
		r.total, err = number(r.c)
	case "link":
		err = r.c.Array(r.link)
	case "entry":
		err = r.c.Array(r.entry)
	default:
		err = r.c.Skip()
	}
	return err
}

func number(c *rawjson.Cursor) (int, error) {
	raw, err := c.Raw()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(raw))
}

func (r *bundleReader) link() error {
	raw, err := r.c.Raw()
	if err != nil {
		return err
	}
	var l link
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	r.links = append(r.links, l)
	return nil
}

func (r *bundleReader) entry() error {
	r.entries = append(r.entries, entry{})
	e := &r.entries[len(r.entries)-1]
	return r.c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "fullUrl":
			err = r.fullURL(e)
		case "resource":
			err = r.resource(e)
		case "search":
			err = r.search(e)
		case "request":
			e.request, err = r.c.Raw()
		case "response":
			e.response, err = r.c.Raw()
		default:
			err = r.c.Skip()
		}
		return err
	})
}

// fullURL is not read of what is judged: the resource says what it is.
func (r *bundleReader) fullURL(e *entry) (err error) {
	if r.judged {
		return r.c.Skip()
	}
	e.fullURL, err = r.c.Text()
	return err
}

func (r *bundleReader) resource(e *entry) (err error) {
	if r.judged {
		e.parsed, e.resource, err = r.resources.Read()
	} else {
		e.resource, err = r.c.Raw()
	}
	return err
}

// search reads the mode, and of what is not judged keeps all else.
func (r *bundleReader) search(e *entry) error {
	if !r.judged {
		raw, err := r.c.Raw()
		if err != nil {
			return err
		}
		e.search = raw
		of := bundleReader{c: rawjson.NewCursor(raw), judged: true}
		return of.search(e)
	}
	return r.c.Object(func(name []byte) error {
		if string(name) != "mode" {
			return r.c.Skip()
		}
		mode, err := r.c.Bytes()
		e.mode = modeNamed(mode)
		return err
	})
}

// modeNamed is a mode without an allocation for the usual ones.
func modeNamed(mode []byte) string {
	for _, known := range []string{"match", "include", "outcome"} {
		if string(mode) == known {
			return known
		}
	}
	return string(mode)
}

// answer is the Bundle as an answer, in a buffer that is given back when it is written.
func (b *bundle) answer() *answer {
	buffer := buffers.Get().(*bytes.Buffer)
	buffer.Grow(b.size())
	_, _ = buffer.Write(b.append(buffer.AvailableBuffer())) // it never fails
	a := newAnswer(http.StatusOK, buffer.Bytes())
	a.buffer = buffer
	return a
}

// text writes the Bundle.
func (b *bundle) text() []byte { return b.append(make([]byte, 0, b.size())) }

func (b *bundle) append(out []byte) []byte {
	out = append(out, `{"resourceType":"Bundle","type":`...)
	out = appendQuoted(out, b.kind)
	if b.total >= 0 {
		out = strconv.AppendInt(append(out, `,"total":`...), int64(b.total), 10)
	}
	if len(b.links) > 0 {
		out = b.links.append(append(out, `,"link":`...))
	}
	for i := range b.entries {
		out = append(out, opening(i, `,"entry":[`)...)
		out = b.entries[i].append(out)
	}
	out = append(out, closing(len(b.entries))...)
	return append(out, '}')
}

// size is about how long the text will be, and not less in all usual cases.
func (b *bundle) size() int {
	n := 256
	for _, l := range b.links {
		n += len(l.URL) + 64
	}
	for i := range b.entries {
		e := &b.entries[i]
		n += len(e.fullURL) + len(e.resource) + len(e.search) + len(e.request) + len(e.response) + 96
	}
	return n
}

// opening is what comes before the element at i of an array, and closing what comes after its last. FHIR has no empty
// arrays.
func opening(i int, start string) string {
	if i == 0 {
		return start
	}
	return ","
}

func closing(n int) string {
	if n == 0 {
		return ""
	}
	return "]"
}

// append writes the entry.
func (e *entry) append(out []byte) []byte {
	out = append(out, '{')
	start := len(out)
	if e.fullURL != "" {
		out = appendQuoted(append(out, `"fullUrl":`...), e.fullURL)
	}
	for _, m := range [...]struct {
		name  string
		value []byte
	}{{"resource", e.resource}, {"search", e.search}, {"request", e.request}, {"response", e.response}} {
		if len(m.value) == 0 {
			continue
		}
		if len(out) > start {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.name...), `":`...)
		out = append(out, m.value...)
	}
	return append(out, '}')
}

// quoted is s as JSON.
func quoted(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted writes s as JSON. Most strings need no escapes.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string never fails
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
