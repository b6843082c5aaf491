package bundle

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// transaction is a client's transaction in progress. Each entry is judged like a request before anything is sent. The resulting
// writes are collected and sent to the FHIR server as one transaction. Reads and searches follow one by one afterwards, in the
// order that R4 requires.
type transaction struct {
	in    *Bundles
	parts []*part
	names map[string]*part // by fullUrl
	preds []*part          // entries with resolved criteria
}

// part is an entry of a transaction.
type part struct {
	submitted
	n       int
	c       message.Call
	i       interaction.Interaction
	as      interaction.Reference // written resource, as other entries refer to it while they are judged
	isNew   bool                  // the id in as is a placeholder for the id that the FHIR server will assign
	result  write.Result          // determines the response to a write
	sent    *message.Call         // resulting request of a write; nil: nothing to write
	instead *message.Response
}

// transaction answers a transaction. A rejected entry rejects the whole transaction.
func (x *Bundles) transaction(ctx context.Context, s *submission) (*message.Response, error) {
	t := &transaction{in: x, names: map[string]*part{}}
	if err := t.readAll(s); err != nil {
		return nil, err
	}
	if err := t.judgeAll(ctx); err != nil {
		return nil, err
	}
	answers, err := t.send(ctx)
	if err != nil {
		return nil, err
	}
	return t.respond(ctx, answers)
}

// readAll parses all entries as requests.
func (t *transaction) readAll(s *submission) error {
	for n := range s.entries {
		p := &part{submitted: s.entries[n], n: n}
		var err error
		if p.c, p.i, err = p.call(); err == nil && !p.isWrite() && !p.isRead() {
			err = message.Invalid(message.ErrBody, "A transaction holds reads, searches and writes, and nothing else.")
		}
		if err == nil {
			err = t.name(p)
		}
		if err != nil {
			return p.refused(err)
		}
		t.parts = append(t.parts, p)
	}
	return nil
}

// judgeAll judges all entries. Conditional entries are first, because other entries may refer to the resources that they find.
func (t *transaction) judgeAll(ctx context.Context) error {
	if err := t.promise(); err != nil {
		return err
	}
	for _, conditional := range []bool{true, false} {
		for _, p := range t.parts {
			if p.isConditional() != conditional {
				continue
			}
			if err := t.judgePart(ctx, p); err != nil {
				return p.refused(err)
			}
		}
	}
	return t.checkDistinct()
}

func (t *transaction) judgePart(ctx context.Context, p *part) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.in.begin()
	var err error
	switch {
	case p.isWrite():
		err = t.judgeWrite(ctx, p)
	case p.i.Kind == interaction.Read || p.i.Kind == interaction.VRead:
		err = t.judgeRead(ctx, p)
	default:
		err = t.in.Entries.CheckSearch(ctx, p.c, p.i)
	}
	t.in.Entries.ReportDecision(p.i, err)
	return err
}

// judgeRead rejects a read that would fail, because the result of the transaction would otherwise reveal whether the resource
// exists. A resource that the transaction itself writes may be read.
func (t *transaction) judgeRead(ctx context.Context, p *part) error {
	for _, other := range t.parts {
		if other.i.Kind == interaction.Update && other.i.Type == p.i.Type && other.i.ID == p.i.ID {
			return nil
		}
	}
	before := t.in.Server.MemoryInUse()
	_, err := t.in.Entries.Answer(ctx, p.c, p.i)
	t.in.Server.ReleaseExcept(before, nil)
	return err
}

// judgeWrite judges a write, and keeps the resulting request.
func (t *transaction) judgeWrite(ctx context.Context, p *part) error {
	body, err := t.resolved(p, p.c.Body)
	if err != nil {
		return err
	}
	p.c.Body = body
	a, err := t.in.Entries.Collect(ctx, p.c, p.i, func(r write.Result, c message.Call) (*message.Response, error) {
		p.result, p.sent = r, &c
		return message.NewResponse(http.StatusOK, nil), t.checkResolved(c.Body)
	})
	if err != nil {
		return err
	}
	if p.sent == nil {
		p.instead = a
	}
	if p.isConditional() {
		return t.settle(p)
	}
	return nil
}

var errOverlap = errors.New("two entries write the same resource")

// checkDistinct rejects two entries that write the same resource (R4 http.html#trules).
func (t *transaction) checkDistinct() error {
	seen := map[string]bool{}
	for _, p := range t.parts {
		if p.sent == nil {
			continue
		}
		of := p.sent.Path
		if p.result.Confined != (interaction.Reference{}) {
			of = p.result.Confined.String()
		} else if p.sent.Method == http.MethodPost || p.sent.Query != "" {
			continue
		}
		if seen[of] {
			return p.refused(message.Invalid(errOverlap, "Another entry writes the same resource."))
		}
		seen[of] = true
	}
	return nil
}

// send sends the resulting writes to the FHIR server, and returns its responses in order. Only judged parts of the client's
// Bundle are forwarded.
func (t *transaction) send(ctx context.Context) ([]message.Entry, error) {
	b := &message.Bundle{Kind: "transaction", Total: -1}
	var first *part
	said := message.SentTerms{} // names and values that the client sent
	for _, p := range t.parts {
		if p.sent == nil {
			continue
		}
		if first == nil {
			first = p
		}
		b.Entries = append(b.Entries, t.entry(p))
		said.Body(p.result.C.Body)
	}
	if first == nil {
		return nil, nil
	}
	t.in.begin()
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := first.sent.Header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := t.in.Server.Do(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.Text()})
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, first.result.Refusal(a, said)
	}
	return answersOf(a, len(b.Entries))
}

// entry returns the entry for the FHIR server. References to new resources become their fullUrl again, which the FHIR server
// resolves.
func (t *transaction) entry(p *part) message.Entry {
	body := p.sent.Body
	for name, other := range t.names {
		if other.isNew {
			body = bytes.ReplaceAll(body, []byte(message.Quoted(other.as.String())), []byte(message.Quoted(name)))
		}
	}
	e := message.Entry{Resource: body, Request: requestOf(*p.sent)}
	if isURN(p.fullURL) && len(body) > 0 {
		e.FullURL = p.fullURL
	}
	return e
}

var errMismatch = errors.New("transaction-response that does not answer each entry")

// answersOf returns the entries of the response to a transaction.
func answersOf(a *message.Response, want int) ([]message.Entry, error) {
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	b, err := message.ParseBundle(a.Body)
	if err != nil {
		return nil, message.NewWithheldError(err)
	}
	if len(b.Entries) != want {
		return nil, message.NewWithheldError(fmt.Errorf("%w: %d of %d", errMismatch, len(b.Entries), want))
	}
	return b.Entries, nil
}

// respond returns the response to the transaction after its writes.
func (t *transaction) respond(ctx context.Context, answers []message.Entry) (*message.Response, error) {
	out := &message.Bundle{Kind: "transaction-response", Total: -1}
	var size int64
	for _, p := range t.parts {
		var e message.Entry
		switch {
		case p.sent != nil:
			e = entryOf(t.told(ctx, p, answers[0]))
			answers = answers[1:]
		case p.instead != nil:
			e = entryOf(p.instead, nil)
		default:
			e = entryOf(t.in.entryAnswer(ctx, &p.submitted, size))
		}
		size += int64(len(e.Resource) + len(e.Response))
		out.Entries = append(out.Entries, e)
	}
	return out.Response(), nil
}

// told returns the client's response to a write, as if it were a single request.
func (t *transaction) told(ctx context.Context, p *part, e message.Entry) (*message.Response, error) {
	var r response
	if err := json.Unmarshal(e.Response, &r); err != nil || len(r.Status) < 3 {
		return nil, message.NewWithheldError(errMismatch)
	}
	status, err := strconv.Atoi(r.Status[:3])
	if err != nil {
		return nil, message.NewWithheldError(errMismatch)
	}
	a := message.NewResponse(status, e.Resource)
	if local, ok := t.in.Addresses.LocalURL(r.Location); ok {
		r.Location = local
	}
	for name, value := range map[string]string{"Location": r.Location, "Etag": r.ETag, "Last-Modified": httpDate(r.LastModified)} {
		if value != "" {
			a.Header.Set(name, value)
		}
	}
	of, err := t.in.Judge.ForCall(ctx, p.c, p.i)
	if err != nil {
		return nil, err
	}
	p.result.Judge = of // without cached resources that other entries have changed since
	return p.result.ClientResponse(ctx, a)
}

// isWrite reports whether the entry changes data.
func (p *part) isWrite() bool {
	return p.i.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

// isConditional reports whether criteria select the resource that the entry writes.
func (p *part) isConditional() bool { return p.isWrite() && p.i.Permission()&smart.Search != 0 }

// isRead reports whether the entry reads or searches.
func (p *part) isRead() bool {
	switch p.i.Kind {
	case interaction.Read, interaction.VRead, interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return true
	}
	return false
}

// refused returns the error of an entry as the error of the transaction. Missing and uncovered resources both become 403, so that
// clients cannot distinguish them.
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

// name registers the fullUrl that other entries use to refer to the resource that an entry writes. A new resource gets a random
// id, which no other resource has, so that references to it are judged like any other. Its fullUrl must be a URN: with a URL,
// some FHIR servers would resolve references to another resource to the new one.
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

// resolved returns the body of an entry with references to other entries replaced by the resources that these write. An
// unresolved URN is rejected, except in a Bundle, because it may refer to its own entries.
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

// replacement is a text in which references are being replaced.
type replacement struct {
	c    *rawjson.Cursor
	text []byte
	by   func(literal string) (string, error)
	out  []byte
	done int // length of the text that is in out
}

// value processes a value, which is a member of this name or part of an array in it.
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

// checkResolved rejects remaining references to an entry, such as those in different case or in a patch: the FHIR server would
// resolve references that were not judged.
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

// promise registers the resources that entries will write, so that others may depend on them: see [judge.Judge.ExpectWrite].
// Whether an entry may write its resource is judged later. The matches of criteria are not known yet.
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

// promisePart registers the resource that an entry will write.
func (t *transaction) promisePart(p *part, text []byte, certain bool) error {
	text, err := rawjson.With(text, "id", []byte(message.Quoted(p.as.ID)))
	if err != nil {
		return message.Invalid(err, "The resource is no JSON that has one reading.")
	}
	res, err := resource.Parse(text, t.in.Addresses.Base)
	if err != nil {
		return message.Invalid(err, "The resource is no JSON that has one reading.")
	}
	t.in.Judge.ExpectWrite(res, certain)
	return nil
}

// settle registers the match of an entry's criteria. Entries that were judged before the match was known must not refer to it.
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

// found returns the match of an entry's criteria: an existing resource, or the placeholder for the new one.
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
