package bundle

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// transaction is a client's on its way. Each entry is judged as the request that it is, before anything is sent. What
// writes come to is collected meanwhile, and goes to the FHIR server as one transaction. Reads and searches are asked
// one by one when that is done, as R4 orders them.
type transaction struct {
	in    *Bundles
	parts []*part
	names map[string]*part // by fullUrl
	preds []*part          // whose criteria have been searched for
}

// part is an entry of a transaction.
type part struct {
	submitted
	n       int
	c       message.Call
	i       interaction.Interaction
	as      interaction.Reference // what is written, as others refer to it while they are judged
	isNew   bool                  // the id in as stands for one that the FHIR server will give
	result  write.Result          // what the client is told of a write
	sent    *message.Call         // what a write comes to; nil: there is nothing to do
	instead *message.Answer
}

// isWrite reports whether the entry changes something.
func (p *part) isWrite() bool {
	return p.i.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

// isConditional reports whether criteria say what the entry writes.
func (p *part) isConditional() bool { return p.isWrite() && p.i.Permission()&smart.Search != 0 }

// isRead reports whether the entry reads or searches.
func (p *part) isRead() bool {
	switch p.i.Kind {
	case interaction.Read, interaction.VRead, interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return true
	}
	return false
}

// refused is the error of an entry as that of the transaction. What is not there is not told from what may not be seen,
// so both are refused in the same way as what no scope allows.
func (p *part) refused(err error) error {
	refusal, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	whole := *refusal
	whole.Description = fmt.Sprintf("Nothing was done, because of Bundle.entry[%d]: %s", p.n, refusal.Description)
	if whole.Status == http.StatusNotFound {
		whole.Status = http.StatusForbidden
	}
	return &whole
}

var errUnresolved = errors.New("reference that no entry resolves")

// name keeps how other entries refer to what an entry writes: by its fullUrl. What is new gets an id that nobody can
// guess, and so nothing else has, by which references to it are judged as any. Its fullUrl must be a URN: of an address,
// some servers would take references to another resource for references to the new one.
func (t *transaction) name(p *part) error {
	if p.fullURL == "" || !p.isWrite() || len(p.c.Body) == 0 {
		return nil
	}
	if t.names[p.fullURL] != nil {
		return message.Invalid(message.ErrBody, "Another entry has the same fullUrl.")
	}
	t.names[p.fullURL] = p
	switch {
	case p.i.ID != "":
		p.as = interaction.Reference{Type: p.i.Type, ID: p.i.ID}
	case !isURN(p.fullURL):
		return message.Invalid(message.ErrBody, "The fullUrl of what is created, or written by criteria, must be a urn:uuid or urn:oid.")
	default:
		p.as, p.isNew = interaction.Reference{Type: p.i.Type, ID: rand.Text()}, true
	}
	return nil
}

func isURN(s string) bool {
	return strings.HasPrefix(s, "urn:uuid:") || strings.HasPrefix(s, "urn:oid:")
}

// resolved is the body of an entry with references to entries as references to what these write. One that is to no
// entry is refused, but in a Bundle, which has entries of its own.
func (t *transaction) resolved(p *part, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return text, nil
	}
	return replaceReferences(text, func(literal string) (string, error) {
		if named := t.names[literal]; named != nil {
			return named.as.String(), nil
		}
		if strings.HasPrefix(literal, "urn:") && p.i.Type != "Bundle" {
			return "", message.Invalid(errUnresolved, "It refers to a urn that is the fullUrl of no entry that writes a resource.")
		}
		return literal, nil
	})
}

// replaceReferences replaces the literal references in a JSON text, at any depth.
func replaceReferences(text []byte, by func(literal string) (string, error)) ([]byte, error) {
	r := replacement{c: rawjson.NewCursor(text).AllowDuplicates(), text: text, by: by}
	err := r.value("")
	if err == nil {
		err = r.c.End()
	}
	if _, ok := errors.AsType[*guard.Error](err); err != nil && !ok {
		err = message.Invalid(err, "The body is no JSON that has one reading.")
	}
	if err != nil {
		return nil, err
	}
	return append(r.out, text[r.done:]...), nil
}

// replacement is a text whose references are being replaced.
type replacement struct {
	c    *rawjson.Cursor
	text []byte
	by   func(literal string) (string, error)
	out  []byte
	done int // how much of the text is in out
}

// value goes through a value, which is a member of a name, or in an array that is.
func (r *replacement) value(name string) error {
	switch r.c.Kind() {
	case rawjson.Object:
		return r.c.Object(func(member []byte) error { return r.value(string(member)) })
	case rawjson.Array:
		return r.c.Array(func() error { return r.value(name) })
	case rawjson.String:
		if name == "reference" {
			return r.reference()
		}
	}
	return r.c.Skip()
}

func (r *replacement) reference() error {
	start := r.c.Offset()
	literal, err := r.c.Text()
	if err != nil {
		return err
	}
	becomes, err := r.by(literal)
	if err == nil && becomes != literal {
		r.out = append(append(r.out, r.text[r.done:start]...), message.Quoted(becomes)...)
		r.done = r.c.Offset()
	}
	return err
}

// checkResolved refuses what still refers to an entry: by letters in different case, or by a patch. The FHIR server
// would resolve what was not judged.
func (t *transaction) checkResolved(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	all, err := message.References(text)
	if err != nil {
		return message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	for name := range t.names {
		if slices.ContainsFunc(all, func(literal string) bool { return strings.EqualFold(strings.TrimSpace(literal), name) }) {
			return message.Invalid(errUnresolved, "It refers to the fullUrl of another entry in a way that is not resolved here.")
		}
	}
	return nil
}

// promise looks ahead at what entries write, so that others may depend on it: see [judge.Judge.Promise]. That they may
// write it is judged with each. What criteria find is not known yet.
func (t *transaction) promise() error {
	for _, p := range t.parts {
		if p.as == (interaction.Reference{}) || p.i.Kind == interaction.Patch || p.i.Kind == interaction.ConditionalPatch {
			continue
		}
		text, err := t.resolved(p, p.c.Body)
		if err != nil {
			return p.refused(err)
		}
		if err := t.promisePart(p, text, !p.isConditional()); err != nil {
			return p.refused(err)
		}
	}
	return nil
}

// promisePart keeps in which patients' records the resource is that an entry writes.
func (t *transaction) promisePart(p *part, text []byte, certain bool) error {
	text, err := rawjson.With(text, "id", []byte(message.Quoted(p.as.ID)))
	if err != nil {
		return message.Invalid(err, "The resource is no JSON that has one reading.")
	}
	res, err := resource.Parse(text, t.in.At.Base)
	if err != nil {
		return message.Invalid(err, "The resource is no JSON that has one reading.")
	}
	t.in.Judge.Promise(res, certain)
	return nil
}

// settle keeps what an entry's criteria have found. Entries that were judged before, when that was not known, must not
// refer to it.
func (t *transaction) settle(p *part) error {
	t.preds = append(t.preds, p)
	found := t.found(p)
	if !p.isNew {
		return nil
	}
	if found == p.as {
		return t.promisePart(p, p.c.Body, p.sent.Query == "" && p.sent.Header.Get("If-None-Exist") == "")
	}
	for _, before := range t.preds {
		if before.sent != nil && bytes.Contains(before.sent.Body, []byte(p.as.String())) {
			return message.Invalid(errUnresolved, "Entries with criteria that come before, or itself, refer to it: put it first.")
		}
	}
	p.as, p.isNew = found, false
	return nil
}

// found is the resource that an entry's criteria lead to: one that is there, or still the one that is new.
func (t *transaction) found(p *part) interaction.Reference {
	address := ""
	switch {
	case p.instead != nil:
		address = p.instead.Header.Get("Location")
	case p.sent.Query == "" && p.sent.Method != "POST":
		address = p.sent.Path
	}
	match := message.ResourceURL.FindStringSubmatch(address)
	if match == nil {
		return p.as
	}
	typ, id, _ := strings.Cut(message.WithoutVersion(match[1]), "/")
	return interaction.Reference{Type: typ, ID: id}
}
