package message

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Bundle is a Bundle, of which the resources stay text.
type Bundle struct {
	ResourceType string  // Bundle, or the type of what came in its place
	Kind         string  // Bundle.type
	Total        int     // -1 if it is not told
	Links        Links   // Bundle.link
	Entries      []Entry // Bundle.entry
}

// Entry is a Bundle.entry.
type Entry struct {
	FullURL  string             // fullUrl
	Resource []byte             // as text
	Parsed   resource.Resource  // if it was read to be judged
	Ranks    []searchparam.Rank // by the keys of _sort, if they were asked for
	Mode     string             // search.mode
	Search   []byte             // search, as text
	Request  []byte             // request, as text
	Response []byte             // response, as text
}

const (
	usualEntries = 50   // of a page
	mostEntries  = 1000 // of a list that is kept
)

// entryLists are lists of entries, of which a few are kept, and no long ones.
var entryLists = sync.Pool{New: func() any { return new([]Entry) }}

// NewEntries is an empty list with room for the entries of the usual page.
func NewEntries() []Entry {
	return slices.Grow(*entryLists.Get().(*[]Entry), usualEntries)
}

// GiveBackEntries keeps a list for others. Nothing of what is in it may be in use any more.
func GiveBackEntries(list []Entry) {
	if clear(list); cap(list) <= mostEntries {
		list = list[:0]
		entryLists.Put(&list)
	}
}

// ParseBundle reads a Bundle of the FHIR server's, or what else it answered with instead. Members that say nothing to
// us are left out: what is not understood is not passed on.
func ParseBundle(text []byte) (*Bundle, error) {
	r := bundleReader{b: &Bundle{Total: -1}, c: rawjson.NewCursor(text).AllowDuplicates()}
	return r.read()
}

// parseJudged is parseBundle with all resources read, and no name twice in an object. The entries can be given back.
func (to Addresses) parseJudged(text []byte) (*Bundle, error) {
	r := bundleReader{
		b: &Bundle{Total: -1, Entries: NewEntries()},
		c: rawjson.NewCursor(text), judged: true,
	}
	r.resources = resource.NewReader(r.c, text, to.Base)
	return r.read()
}

// BundleOf reads the answer to a search to what the client has sent.
func (to Addresses) BundleOf(a *Answer, judged bool, sent Said) (*Bundle, error) {
	if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
		return nil, Failed(a)
	}
	if !a.Succeeded() {
		refusal := Invalid(ErrSearch, "The FHIR server refuses the search (%d).", a.Status)
		refusal.Description = Explained(refusal.Description, a, sent)
		return nil, refusal
	}
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	read := ParseBundle
	if judged {
		read = to.parseJudged
	}
	b, err := read(a.Body)
	if err != nil {
		return nil, Withheld(err)
	}
	return b, nil
}

// bundleReader reads a Bundle in one pass.
type bundleReader struct {
	b         *Bundle
	c         *rawjson.Cursor
	resources *resource.Reader // if they are judged
	judged    bool
}

func (r *bundleReader) read() (*Bundle, error) {
	err := r.c.Object(r.member)
	if err == nil {
		err = r.c.End()
	}
	if err == nil && r.b.ResourceType != "Bundle" {
		err = fmt.Errorf("resourceType %q where a Bundle should be", r.b.ResourceType)
	}
	return r.b, err
}

func (r *bundleReader) member(name []byte) (err error) {
	switch string(name) {
	case "resourceType":
		r.b.ResourceType, err = r.c.Text()
	case "type":
		r.b.Kind, err = r.c.Text()
	case "total":
		r.b.Total, err = number(r.c)
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
	var l Link
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	r.b.Links = append(r.b.Links, l)
	return nil
}

func (r *bundleReader) entry() error {
	r.b.Entries = append(r.b.Entries, Entry{})
	e := &r.b.Entries[len(r.b.Entries)-1]
	return r.c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "fullUrl":
			err = r.fullURL(e)
		case "resource":
			err = r.resource(e)
		case "search":
			err = r.search(e)
		case "request":
			e.Request, err = r.c.Raw()
		case "response":
			e.Response, err = r.c.Raw()
		default:
			err = r.c.Skip()
		}
		return err
	})
}

// fullURL is not read of what is judged: the resource says what it is.
func (r *bundleReader) fullURL(e *Entry) (err error) {
	if r.judged {
		return r.c.Skip()
	}
	e.FullURL, err = r.c.Text()
	return err
}

func (r *bundleReader) resource(e *Entry) (err error) {
	if r.judged {
		e.Parsed, e.Resource, err = r.resources.Read()
	} else {
		e.Resource, err = r.c.Raw()
	}
	return err
}

// search reads the mode, and of what is not judged keeps all else.
func (r *bundleReader) search(e *Entry) error {
	if !r.judged {
		raw, err := r.c.Raw()
		if err != nil {
			return err
		}
		e.Search = raw
		of := bundleReader{c: rawjson.NewCursor(raw), judged: true}
		return of.search(e)
	}
	return r.c.Object(func(name []byte) error {
		if string(name) != "mode" {
			return r.c.Skip()
		}
		mode, err := r.c.Bytes()
		e.Mode = modeNamed(mode)
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
