package capability

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Metadata answers GET metadata, which needs no token, with the FHIR server's CapabilityStatement as it is when the
// server is guarded. It is safe for concurrent use, and must not be changed or copied once in use.
//
// The statement is in JSON, and says of no other format. The mode terminology passes as it is.
type Metadata struct {
	// Base is the path of the FHIR API. Required.
	Base string
	// Changes are made to the statement.
	Changes Changes
	// Answered are the operations that were answered on the way to the server, as the request tells once it was
	// answered: they come on top of those of Changes. Nil: none.
	Answered func(r *http.Request) []AnsweredOperation
	// Limit is the size up to which a statement is changed, in bytes. A longer one fails. Default: 16 MiB.
	Limit int64
	// Memory bounds what all requests hold together. Nil: nothing does.
	Memory *fairmemory.Memory
	// Network returns the network of a request, which has a part of the memory, since the request has no token. Nil: all
	// requests share that part.
	Network func(r *http.Request) string

	mu   sync.Mutex
	kept []keptStatement // the latest last
}

// keptStatement is a statement that was changed before. Servers make the same one for minutes, of more than a megabyte.
type keptStatement struct {
	of   [sha256.Size]byte // the server's, and how many operations were answered before it
	text []byte
	etag string
}

// maxStatements is how many are kept: there are some for each _summary and _elements.
const maxStatements = 4

// ServeHTTP answers a request. Any error is a *guard.Error or the next handler's.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request, next message.NextHandler) error {
	parameters, err := readMetadata(r.URL.RawQuery)
	if err != nil {
		return err
	}
	x := fhirserver.New(m.Base, fhirserver.Limits{Answer: m.Limit}, m.share(r), next, r)
	defer x.Share.Release()
	if slices.Contains(parameters, smart.Parameter{Name: "mode", Value: "terminology"}) {
		return x.Next.ServeHTTP(w, r)
	}
	if err := message.CheckFormat(r.Header, parameters); err != nil {
		return err
	}
	a, err := m.Answer(&x, message.Get("metadata", r.URL.RawQuery), r)
	if err != nil {
		return err
	}
	x.Share.ShrinkTo(int64(len(a.Body)))
	return a.Write(w, r)
}

// share returns the request's share of the memory.
func (m *Metadata) share(r *http.Request) *fairmemory.Share {
	network := ""
	if m.Network != nil {
		network = m.Network(r)
	}
	return m.Memory.Share(fairmemory.Network(network))
}

// readMetadata reads the parameters of a request for metadata.
func readMetadata(query string) ([]smart.Parameter, error) {
	parameters, err := smart.ParseParameters(query)
	if err != nil {
		return nil, message.Invalid(err, "The query can be read in several ways.")
	}
	if err := paging.RefusePaging(parameters); err != nil {
		return nil, err
	}
	return parameters, message.CheckNames("metadata", parameters, metadataParameters)
}

// Answer is the statement that the server gives, changed.
func (m *Metadata) Answer(x *fhirserver.Server, c message.Call, r *http.Request) (*message.Answer, error) {
	if _, err := readMetadata(c.Query); err != nil {
		return nil, err
	}
	a, err := x.Ask(r.Context(), c)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Location", "Content-Location"} { // the server's address of what was requested here
		a.Header.Del(name)
	}
	if a.Status == http.StatusOK && a.IsJSON() {
		err = m.change(a, r)
	}
	return a, err
}

// metadataParameters are those of R4 (http.html#capabilities, #parameters). Others could have a server that knows no
// metadata search for something.
var metadataParameters = []string{"mode", "_format", "_pretty", "_summary", "_elements"}

// change changes a statement, or takes it from those that were changed before. What is none stays if it says as little of
// anybody; else it is withheld, since it goes to whoever asks.
func (m *Metadata) change(a *message.Answer, r *http.Request) error {
	changes := m.Changes
	if m.Answered != nil {
		changes.Answered = slices.Concat(changes.Answered, m.Answered(r))
	}
	of := sha256.Sum256(slices.Concat(a.Body, []byte{byte(len(changes.Answered))}))
	kept, ok := m.find(of)
	if !ok {
		text, err := Capabilities(a.Body, changes)
		switch {
		case err != nil && isNobodys(a.Body):
			return nil
		case err != nil:
			return message.Withheld(err)
		}
		sum := sha256.Sum256(text)
		kept = keptStatement{of, text, `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		m.keep(kept)
	}
	a.Body = kept.text
	a.Header.Set("Etag", kept.etag)
	a.Header.Del("Last-Modified")
	return nil
}

// isNobodys reports whether a text is what else a server may say of itself, or no FHIR at all: an object without
// resourceType is nobody's record.
func isNobodys(text []byte) bool {
	if res, err := resource.Parse(text); err == nil {
		return res.Type == "TerminologyCapabilities"
	}
	c, typed := rawjson.NewCursor(text), false
	err := c.Object(func(name []byte) error {
		typed = typed || strings.EqualFold(string(name), "resourceType") || strings.EqualFold(string(name), "entry")
		return c.Skip()
	})
	return err == nil && c.End() == nil && !typed
}

func (m *Metadata) find(of [sha256.Size]byte) (keptStatement, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kept := range m.kept {
		if kept.of == of {
			return kept, true
		}
	}
	return keptStatement{}, false
}

func (m *Metadata) keep(s keptStatement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept[max(0, len(m.kept)+1-maxStatements):], s)
}
