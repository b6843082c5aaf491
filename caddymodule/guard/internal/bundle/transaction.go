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

// transaction is a client's transaction in progress. All entries are judged like requests before anything is sent. The
// resulting writes are collected and sent to the FHIR server as one transaction. After that, reads and searches are executed
// one by one, in the order that R4 requires.
type transaction struct {
	handler            *Handler
	entries            []*transactionEntry
	byFullURL          map[string]*transactionEntry // entries by fullUrl
	conditionalEntries []*transactionEntry          // entries with resolved criteria
}

// transactionEntry is an entry of a transaction.
type transactionEntry struct {
	submittedEntry
	index            int
	call             message.Call
	interaction      interaction.Interaction
	reference        interaction.Reference // the written resource, for references in other entries while they are judged
	hasPlaceholderID bool                  // the id in reference is a placeholder for the id that the FHIR server will assign
	result           write.Result          // determines the response to a write
	writeCall        *message.Call         // request for the write; nil if nothing has to be written
	existingResponse *message.Response
}

// handleTransaction answers a transaction. If an entry is rejected, the transaction is rejected.
func (x *Handler) handleTransaction(ctx context.Context, s *submission) (*message.Response, error) {
	t := &transaction{handler: x, byFullURL: map[string]*transactionEntry{}}
	if err := t.parseAll(s); err != nil {
		return nil, err
	}
	if err := t.judgeAll(ctx); err != nil {
		return nil, err
	}
	responses, err := t.send(ctx)
	if err != nil {
		return nil, err
	}
	return t.respond(ctx, responses)
}

// parseAll parses all entries as requests.
func (t *transaction) parseAll(s *submission) error {
	for n := range s.entries {
		p := &transactionEntry{submittedEntry: s.entries[n], index: n}
		var err error
		if p.call, p.interaction, err = p.toCall(); err == nil && !p.isWrite() && !p.isRead() {
			err = message.InvalidRequest(message.ErrInvalidBody, "A transaction may only contain reads, searches and writes.")
		}
		if err == nil {
			err = t.registerFullURL(p)
		}
		if err != nil {
			return p.transactionError(err)
		}
		t.entries = append(t.entries, p)
	}
	return nil
}

// judgeAll judges all entries, starting with conditional ones, because other entries may refer to the resources that they find.
func (t *transaction) judgeAll(ctx context.Context) error {
	if err := t.expectWrites(); err != nil {
		return err
	}
	for _, conditional := range []bool{true, false} {
		for _, p := range t.entries {
			if p.isConditional() != conditional {
				continue
			}
			if err := t.judgeEntry(ctx, p); err != nil {
				return p.transactionError(err)
			}
		}
	}
	return t.checkDistinct()
}

func (t *transaction) judgeEntry(ctx context.Context, p *transactionEntry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.handler.resetForEntry()
	var err error
	switch {
	case p.isWrite():
		err = t.judgeWrite(ctx, p)
	case p.interaction.Kind == interaction.Read || p.interaction.Kind == interaction.VRead:
		err = t.judgeRead(ctx, p)
	default:
		err = t.handler.EntryHandler.CheckSearch(ctx, p.call, p.interaction)
	}
	t.handler.EntryHandler.ReportDecision(p.interaction, err)
	return err
}

// judgeRead rejects a read that would fail, because otherwise the result of the transaction would reveal whether the resource
// exists. A resource that the transaction itself writes may be read.
func (t *transaction) judgeRead(ctx context.Context, p *transactionEntry) error {
	for _, other := range t.entries {
		if other.interaction.Kind == interaction.Update && other.interaction.Type == p.interaction.Type && other.interaction.ID == p.interaction.ID {
			return nil
		}
	}
	before := t.handler.Server.MemoryInUse()
	_, err := t.handler.EntryHandler.Handle(ctx, p.call, p.interaction)
	t.handler.Server.ReleaseExcept(before, nil)
	return err
}

// judgeWrite judges a write and stores the resulting request in p.
func (t *transaction) judgeWrite(ctx context.Context, p *transactionEntry) error {
	body, err := t.resolveReferences(p, p.call.Body)
	if err != nil {
		return err
	}
	p.call.Body = body
	a, err := t.handler.EntryHandler.CollectWrite(ctx, p.call, p.interaction, func(r write.Result, c message.Call) (*message.Response, error) {
		p.result, p.writeCall = r, &c
		return message.NewResponse(http.StatusOK, nil), t.checkResolved(c.Body)
	})
	if err != nil {
		return err
	}
	if p.writeCall == nil {
		p.existingResponse = a
	}
	if p.isConditional() {
		return t.registerMatch(p)
	}
	return nil
}

var errDuplicateWrite = errors.New("two transaction entries write the same resource")

// checkDistinct returns an error if two entries write the same resource (R4 http.html#trules).
func (t *transaction) checkDistinct() error {
	seen := map[string]bool{}
	for _, p := range t.entries {
		if p.writeCall == nil {
			continue
		}
		of := p.writeCall.Path
		if p.result.ConfinedTo != (interaction.Reference{}) {
			of = p.result.ConfinedTo.String()
		} else if p.writeCall.Method == http.MethodPost || p.writeCall.Query != "" {
			continue
		}
		if seen[of] {
			return p.transactionError(message.InvalidRequest(errDuplicateWrite, "Another entry writes the same resource."))
		}
		seen[of] = true
	}
	return nil
}

// send sends the resulting writes to the FHIR server and returns its response entries in order. Only judged parts of the
// client's Bundle are forwarded.
func (t *transaction) send(ctx context.Context) ([]message.Entry, error) {
	b := &message.Bundle{Type: "transaction", Total: -1}
	var first *transactionEntry
	sentTerms := message.SentTerms{} // names and values that the client sent
	for _, p := range t.entries {
		if p.writeCall == nil {
			continue
		}
		if first == nil {
			first = p
		}
		b.Entries = append(b.Entries, t.bundleEntry(p))
		sentTerms.AddBody(p.result.ClientCall.Body)
	}
	if first == nil {
		return nil, nil
	}
	t.handler.resetForEntry()
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := first.writeCall.Header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := t.handler.Server.Do(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.JSON()})
	if err != nil {
		return nil, err
	}
	if !a.IsSuccess() {
		return nil, first.result.RejectionError(a, sentTerms)
	}
	return responseEntries(a, len(b.Entries))
}

// bundleEntry returns the entry for the FHIR server. References to new resources are replaced by their fullUrl, which the FHIR
// server resolves.
func (t *transaction) bundleEntry(p *transactionEntry) message.Entry {
	body := p.writeCall.Body
	for name, other := range t.byFullURL {
		if other.hasPlaceholderID {
			body = bytes.ReplaceAll(body, []byte(message.QuoteJSON(other.reference.String())), []byte(message.QuoteJSON(name)))
		}
	}
	e := message.Entry{Resource: body, Request: encodeRequest(*p.writeCall)}
	if isURN(p.fullURL) && len(body) > 0 {
		e.FullURL = p.fullURL
	}
	return e
}

var errEntryMismatch = errors.New("entries of the transaction-response do not match the request")

// responseEntries returns the entries of the response to a transaction. It returns an error if their number is not want.
func responseEntries(a *message.Response, want int) ([]message.Entry, error) {
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	b, err := message.ParseBundle(a.Body)
	if err != nil {
		return nil, message.NewWithheldError(err)
	}
	if len(b.Entries) != want {
		return nil, message.NewWithheldError(fmt.Errorf("%w: got %d entries, expected %d", errEntryMismatch, len(b.Entries), want))
	}
	return b.Entries, nil
}

// respond returns the response to the transaction after its writes were executed.
func (t *transaction) respond(ctx context.Context, responses []message.Entry) (*message.Response, error) {
	out := &message.Bundle{Type: "transaction-response", Total: -1}
	var size int64
	for _, p := range t.entries {
		var e message.Entry
		switch {
		case p.writeCall != nil:
			e = responseEntry(t.clientResponse(ctx, p, responses[0]))
			responses = responses[1:]
		case p.existingResponse != nil:
			e = responseEntry(p.existingResponse, nil)
		default:
			e = responseEntry(t.handler.handleEntry(ctx, &p.submittedEntry, size))
		}
		size += int64(len(e.Resource) + len(e.Response))
		out.Entries = append(out.Entries, e)
	}
	return out.Response(), nil
}

// clientResponse returns the client's response to a write, as if it were a single request.
func (t *transaction) clientResponse(ctx context.Context, p *transactionEntry, e message.Entry) (*message.Response, error) {
	var r entryResponse
	if err := json.Unmarshal(e.Response, &r); err != nil || len(r.Status) < 3 {
		return nil, message.NewWithheldError(errEntryMismatch)
	}
	status, err := strconv.Atoi(r.Status[:3])
	if err != nil {
		return nil, message.NewWithheldError(errEntryMismatch)
	}
	a := message.NewResponse(status, e.Resource)
	if local, ok := t.handler.Addresses.LocalURL(r.Location); ok {
		r.Location = local
	}
	for name, value := range map[string]string{"Location": r.Location, "Etag": r.ETag, "Last-Modified": toHTTPDate(r.LastModified)} {
		if value != "" {
			a.Header.Set(name, value)
		}
	}
	of, err := t.handler.Judge.ForCall(ctx, p.call, p.interaction)
	if err != nil {
		return nil, err
	}
	p.result.Judge = of // does not use cached resources that other entries have changed since
	return p.result.ClientResponse(ctx, a)
}

// isWrite reports whether the entry changes data.
func (p *transactionEntry) isWrite() bool {
	return p.interaction.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

// isConditional reports whether criteria select the resource that the entry writes.
func (p *transactionEntry) isConditional() bool {
	return p.isWrite() && p.interaction.Permission()&smart.Search != 0
}

// isRead reports whether the entry reads or searches.
func (p *transactionEntry) isRead() bool {
	switch p.interaction.Kind {
	case interaction.Read, interaction.VRead, interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return true
	}
	return false
}

// transactionError turns the error of an entry into the error of the transaction. Errors for missing and for uncovered
// resources both become 403, so that clients cannot distinguish them.
func (p *transactionEntry) transactionError(err error) error {
	rejection, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	result := *rejection
	result.Description = fmt.Sprintf("The transaction was rejected because of Bundle.entry[%d]: %s", p.index, rejection.Description)
	if result.Status == http.StatusNotFound {
		result.Status = http.StatusForbidden
	}
	return &result
}

var errUnresolvedReference = errors.New("transaction contains an unresolved reference")

// registerFullURL registers the fullUrl by which other entries refer to the resource that an entry writes. A new resource gets
// a random id, which no other resource has, so that references to it can be judged. Its fullUrl must be a URN: if it were a
// URL, some FHIR servers would resolve references to another resource to the new one.
func (t *transaction) registerFullURL(p *transactionEntry) error {
	if p.fullURL == "" || !p.isWrite() || len(p.call.Body) == 0 {
		return nil
	}
	if t.byFullURL[p.fullURL] != nil {
		return message.InvalidRequest(message.ErrInvalidBody, "Another entry has the same fullUrl.")
	}
	t.byFullURL[p.fullURL] = p
	switch {
	case p.interaction.ID != "":
		p.reference = interaction.Reference{Type: p.interaction.Type, ID: p.interaction.ID}
	case !isURN(p.fullURL):
		return message.InvalidRequest(message.ErrInvalidBody, "An entry with a create or a conditional write must have a fullUrl that is a urn:uuid or urn:oid.")
	default:
		p.reference, p.hasPlaceholderID = interaction.Reference{Type: p.interaction.Type, ID: rand.Text()}, true
	}
	return nil
}

func isURN(s string) bool {
	return strings.HasPrefix(s, "urn:uuid:") || strings.HasPrefix(s, "urn:oid:")
}

// resolveReferences returns the body of an entry. References to other entries are replaced by references to the resources that
// these entries write. An unresolved URN is rejected unless the body is a Bundle: its URNs may refer to its own entries.
func (t *transaction) resolveReferences(p *transactionEntry, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return text, nil
	}
	return replaceReferences(text, func(literal string) (string, error) {
		if target := t.byFullURL[literal]; target != nil {
			return target.reference.String(), nil
		}
		if strings.HasPrefix(literal, "urn:") && p.interaction.Type != "Bundle" {
			return "", message.InvalidRequest(errUnresolvedReference, "The entry refers to a URN that is not the fullUrl of any entry that writes a resource.")
		}
		return literal, nil
	})
}

// replaceReferences replaces the literal references in JSON text, at any depth.
func replaceReferences(text []byte, by func(literal string) (string, error)) ([]byte, error) {
	r := referenceReplacer{cursor: rawjson.NewCursor(text).AllowDuplicates(), text: text, replace: by}
	err := r.processValue("")
	if err == nil {
		err = r.cursor.CheckEnd()
	}
	if _, ok := errors.AsType[*guard.Error](err); err != nil && !ok {
		err = message.InvalidRequest(err, "The body must be valid JSON without duplicate names.")
	}
	if err != nil {
		return nil, err
	}
	return append(r.out, text[r.copied:]...), nil
}

// referenceReplacer replaces the references in a text.
type referenceReplacer struct {
	cursor  *rawjson.Cursor
	text    []byte
	replace func(literal string) (string, error)
	out     []byte
	copied  int // length of the text that has been copied to out
}

// processValue processes a value: the value of a member with this name, or an element of an array in it.
func (r *referenceReplacer) processValue(name string) error {
	switch r.cursor.Kind() {
	case rawjson.Object:
		return r.cursor.Object(func(member []byte) error { return r.processValue(string(member)) })
	case rawjson.Array:
		return r.cursor.Array(func() error { return r.processValue(name) })
	case rawjson.String:
		if name == "reference" {
			return r.replaceReference()
		}
	}
	return r.cursor.Skip()
}

func (r *referenceReplacer) replaceReference() error {
	start := r.cursor.Offset()
	literal, err := r.cursor.Text()
	if err != nil {
		return err
	}
	replaced, err := r.replace(literal)
	if err == nil && replaced != literal {
		r.out = append(append(r.out, r.text[r.copied:start]...), message.QuoteJSON(replaced)...)
		r.copied = r.cursor.Offset()
	}
	return err
}

// checkResolved returns an error if text still contains references to an entry, e.g. in different case or in a patch, because
// the FHIR server would resolve references that were not judged.
func (t *transaction) checkResolved(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	all, err := message.References(text)
	if err != nil {
		return message.InvalidRequest(err, "The body must be a resource in valid JSON without duplicate names.")
	}
	for name := range t.byFullURL {
		if slices.ContainsFunc(all, func(literal string) bool { return strings.EqualFold(strings.TrimSpace(literal), name) }) {
			return message.InvalidRequest(errUnresolvedReference, "The entry refers to the fullUrl of another entry in an unsupported way.")
		}
	}
	return nil
}

// expectWrites registers the resources that entries will write, so that other entries may depend on them: see
// [judge.Judge.ExpectWrite]. Whether an entry may write its resource is judged later. Matches of criteria are not known yet.
func (t *transaction) expectWrites() error {
	for _, p := range t.entries {
		if p.reference == (interaction.Reference{}) || p.interaction.Kind == interaction.Patch || p.interaction.Kind == interaction.ConditionalPatch {
			continue
		}
		text, err := t.resolveReferences(p, p.call.Body)
		if err != nil {
			return p.transactionError(err)
		}
		if err := t.expectWrite(p, text, !p.isConditional()); err != nil {
			return p.transactionError(err)
		}
	}
	return nil
}

// expectWrite registers the resource that an entry will write.
func (t *transaction) expectWrite(p *transactionEntry, text []byte, isCertain bool) error {
	text, err := rawjson.WithMember(text, "id", []byte(message.QuoteJSON(p.reference.ID)))
	if err != nil {
		return message.InvalidRequest(err, "The resource must be valid JSON without duplicate names.")
	}
	res, err := resource.Parse(text, t.handler.Addresses.Base)
	if err != nil {
		return message.InvalidRequest(err, "The resource must be valid JSON without duplicate names.")
	}
	t.handler.Judge.ExpectWrite(res, isCertain)
	return nil
}

// registerMatch registers the match of an entry's criteria. It returns an error if entries that were judged before refer to the
// match.
func (t *transaction) registerMatch(p *transactionEntry) error {
	t.conditionalEntries = append(t.conditionalEntries, p)
	found := t.matchOf(p)
	if !p.hasPlaceholderID {
		return nil
	}
	if found == p.reference {
		return t.expectWrite(p, p.call.Body, p.writeCall.Query == "" && p.writeCall.Header.Get("If-None-Exist") == "")
	}
	for _, before := range t.conditionalEntries {
		if before.writeCall != nil && bytes.Contains(before.writeCall.Body, []byte(p.reference.String())) {
			return message.InvalidRequest(errUnresolvedReference, "The entry itself or a preceding conditional entry refers to this entry: move this entry to the front.")
		}
	}
	p.reference, p.hasPlaceholderID = found, false
	return nil
}

// matchOf returns the match of an entry's criteria: an existing resource, or the placeholder for the new one.
func (t *transaction) matchOf(p *transactionEntry) interaction.Reference {
	address := ""
	switch {
	case p.existingResponse != nil:
		address = p.existingResponse.Header.Get("Location")
	case p.writeCall.Query == "" && p.writeCall.Method != "POST":
		address = p.writeCall.Path
	}
	match := message.ResourceURL.FindStringSubmatch(address)
	if match == nil {
		return p.reference
	}
	typ, id, _ := strings.Cut(message.WithoutVersion(match[1]), "/")
	return interaction.Reference{Type: typ, ID: id}
}
