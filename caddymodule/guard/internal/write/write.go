// Package write answers writes: one and the same grant must cover a resource as it is, and as it will be.
//
//	write.go       create, update and delete, conditional or not; the version that is changed; the response to the client
//	patch.go       a JSON Patch is applied here and forwarded as an update; a FHIRPath Patch is forwarded if it is plain
//	permission.go  what the grants allow: the resource, its references, and effects on the server, such as those of a Subscription
//
// References: FHIR R4, RESTful API (http.html#create to #ccreate); RFC 6902.
package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/read"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// permission says what the grants for a write allow to be written.
type permission struct {
	judge        *judge.Judge
	shared       access.Shared
	resourceType string
	grants       []access.Grant
}

// Result is what the client is told of a write.
type Result struct {
	Judge *judge.Judge // judges the response
	at    message.Addresses
	C     message.Call // the client's
	i     interaction.Interaction
	// Confined is the resource that is deleted as long as it matches criteria. Zero for all other writes.
	Confined interaction.Reference
	server   *fhirserver.Server
}

// Collector takes what a write comes to in place of the server, with what the client is to be told of it.
type Collector func(r Result, c message.Call) (*message.Answer, error)

// Writes are the writes that one request needs.
type Writes struct {
	Server   *fhirserver.Server // asks the FHIR server
	Judge    *judge.Judge       // judges what it answers
	At       message.Addresses  // names what it holds as clients know it
	Searches *search.Searches   // of criteria
	Reads    *read.Reads        // reads the stored version
	Shared   access.Shared      // are the rules of types outside of the compartment
	Upsert   bool               // an update may create a resource

	ConditionalDeletes *ConditionalDeletes // of the FHIR server

	Limit   int64     // of a body
	Collect Collector // nil: writes are sent
}

// write is a create, update, patch or delete on its way.
type write struct {
	in       *Writes
	c        message.Call
	i        interaction.Interaction
	may      permission
	whole    bool                  // a grant is about all resources of the type
	criteria *search.Selection     // of a conditional one
	confined interaction.Reference // see [Result.Confined]
}

// isCascade reports whether a parameter has HAPI's server delete what refers to a resource, too.
func isCascade(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_cascade"
}

// version is a resource as it is or will be.
type version struct {
	resource.Resource
	text []byte
	etag string // of the version on the server, by which it is held
}

// isConditional reports whether the resource is the one that matches criteria.
func (w *write) isConditional() bool { return w.i.Permission()&smart.Search != 0 }

// planned plans the search that the criteria of a conditional write are.
func (x *Writes) planned(ctx context.Context, i interaction.Interaction) (*search.Selection, error) {
	s, err := x.Searches.Selecting(ctx, i.Type, slices.DeleteFunc(i.Criteria(), isCascade))
	if err == nil && !s.Selects {
		err = message.Invalid(message.ErrSearch, "Criteria of a conditional request select resources, and nothing else.")
	}
	return s, err
}

// isForwarded reports whether the FHIR server does by itself what the client asks for: the scopes are about all that it
// may find and change.
func (w *write) isForwarded() bool {
	return w.whole && (!w.isConditional() || !w.criteria.Nothing && w.in.Judge.Rights().Whole(w.i.Type, smart.Search))
}

// forwardedCriteria are the query and the header that bring the FHIR server the criteria, as the rules for searches have
// left them.
func (w *write) forwardedCriteria() (query string, ifNoneExist []string) {
	switch {
	case !w.isConditional():
		return w.c.Query, nil
	case w.i.Kind == interaction.ConditionalCreate:
		return w.c.Query, []string{smart.EncodeParameters(w.criteria.Parameters)}
	}
	cascade := slices.DeleteFunc(slices.Clone(w.i.Parameters), func(p smart.Parameter) bool { return !isCascade(p) })
	return smart.EncodeParameters(slices.Concat(w.criteria.Parameters, cascade)), nil
}

// resolve makes a write of what matches the criteria one by id.
func (w *write) resolve(ctx context.Context) error {
	if !w.isConditional() {
		return nil
	}
	id, err := w.criteria.One(ctx)
	if err == nil && id == "" {
		err = message.NotFound()
	}
	w.i.ID = id
	return err
}

// newWrite refuses what no scope permits whatever the resource is.
func (x *Writes) newWrite(ctx context.Context, c message.Call, i interaction.Interaction) (*write, error) {
	p, rights := i.Permission()&^smart.Search, x.Judge.Rights()
	w := &write{in: x, c: c, i: i, whole: rights.Whole(i.Type, p) && (p == smart.Delete || len(rights.Opening(i.Type)) == 0)}
	w.may = permission{judge: x.Judge, shared: x.Shared, resourceType: i.Type, grants: rights.For(i.Type, p)}
	switch {
	case len(w.may.grants) == 0:
		return nil, message.Refused(rights, i)
	case i.Type == "Patient" && p&(smart.Create|smart.Delete) != 0:
		w.may.grants = slices.DeleteFunc(w.may.grants, func(g access.Grant) bool { return g.Patient != "" })
	}
	if len(w.may.grants) == 0 {
		return nil, message.Forbidden(message.ErrScope, "Under scopes that are bound to a patient, no Patient is created or deleted.").Lifted(message.Lacking(rights, i))
	}
	if extra := w.extra(); extra != "" {
		return nil, message.Forbidden(message.ErrScope, "%s is not allowed under these scopes.", extra)
	}
	var err error
	if w.isConditional() {
		w.criteria, err = x.planned(ctx, i)
	}
	return w, err
}

// extra is what the request asks for beyond the one resource, and what no scope allows. Empty if nothing.
func (w *write) extra() string {
	switch {
	case !MayExtend(w.in.Judge.Rights(), w.c.Header, w.i):
		return "A write of other resources along with the one named (_cascade, X-Cascade, X-Provenance)"
	case !w.whole && !w.isConditional() && len(w.i.Criteria()) > 0:
		return "The parameter " + strconv.Quote(w.i.Criteria()[0].Name)
	}
	return ""
}

// MayExtend reports whether the scopes allow all resources that a write may reach beside the one that it names: those
// that refer to a deleted one, on HAPI's servers, and a Provenance (R4 provenance.html#header).
func MayExtend(rights *access.Rights, header http.Header, i interaction.Interaction) bool {
	if header.Get("X-Provenance") != "" && (!rights.Whole(smart.AnyType, smart.Search) || !rights.Whole("Provenance", smart.Create)) {
		return false
	}
	cascades := header.Get("X-Cascade") != "" || slices.ContainsFunc(i.Parameters, isCascade)
	return !cascades || rights.Whole(smart.AnyType, smart.Delete)
}

// newVersion reads the resource that the client writes.
func (w *write) newVersion(text []byte) (*version, error) {
	res, err := resource.Parse(text, w.in.At.Base)
	switch {
	case err != nil:
		return nil, message.Invalid(err, "The body is no resource in JSON that has one reading.")
	case res.Type != w.i.Type:
		return nil, message.Invalid(message.ErrBody, "The resource is not of the type in the path.")
	}
	if err := w.in.checkEffect(res, text); err != nil {
		return nil, err
	}
	return &version{Resource: res, text: text}, checkConditional(w.in.Judge.Rights(), text)
}

// errAbsent says that a resource is not there. Clients are told no more than by ErrOutside.
var errAbsent = fmt.Errorf("%w: it is not there", message.ErrOutside)

// current asks for the version that is to be changed. One that is not covered is answered like one that is not there.
func (w *write) current(ctx context.Context) (*version, error) {
	of := interaction.Reference{Type: w.i.Type, ID: w.i.ID}
	a, err := w.in.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return nil, err
	}
	res, err := w.in.Judge.Stored(ctx, of, w.may.grants, a)
	refusal, _ := errors.AsType[*guard.Error](err)
	switch {
	case refusal != nil && errors.Is(err, message.ErrOutside) && a.Status == http.StatusNotFound:
		refusal.Err = errAbsent
		return nil, refusal
	case err != nil:
		return nil, err
	}
	return w.held(res, a)
}

var errNoVersion = errors.New("the FHIR server tells no version, so that the one judged could be another when it is written")

// held is the version with the ETag by which it is held, if the client's conditions allow it to be changed.
func (w *write) held(res resource.Resource, a *message.Answer) (*version, error) {
	etag := a.Header.Get("Etag")
	if etag == "" && res.VersionID != "" {
		etag = `W/"` + res.VersionID + `"`
	}
	if etag == "" {
		return nil, message.Withheld(errNoVersion)
	}
	match, none := w.c.Header.Values("If-Match"), w.c.Header.Values("If-None-Match")
	if len(match) > 0 && !namesETag(match, etag) || namesETag(none, etag) {
		return nil, &guard.Error{Status: http.StatusPreconditionFailed, Description: "The resource has another version.", Err: errConflict}
	}
	return &version{res, a.Body, etag}, nil
}

// namesETag reports whether a condition names the ETag, or any.
func namesETag(condition []string, etag string) bool {
	return slices.Contains(condition, "*") || message.IsNotModified(http.Header{"If-None-Match": condition}, etag)
}

// Create answers a create, conditional or not. The id in the body means nothing (R4 http.html#create).
func (x *Writes) Create(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.c.Body)
	if err != nil {
		return nil, err
	}
	if w.isForwarded() {
		return w.forward(ctx)
	}
	body, err := rawjson.Without(after.text, "id")
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(body); err != nil {
		return nil, err
	}
	if _, err := w.may.permit(ctx, nil, after); err != nil {
		return nil, err
	}
	if w.isConditional() {
		id, err := w.criteria.One(ctx)
		if err != nil || id != "" {
			return x.found(ctx, i.Type, id, err)
		}
	}
	return w.send(ctx, w.post(body))
}

// found is what a conditional create is answered with if the resource is there already (R4 http.html#ccreate).
func (x *Writes) found(ctx context.Context, resourceType, id string, err error) (*message.Answer, error) {
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: resourceType, ID: id}
	a, err := x.Reads.Read(ctx, message.Get(of.String(), ""), interaction.Interaction{Kind: interaction.Read, Type: of.Type, ID: of.ID})
	if err != nil {
		a = message.NewAnswer(http.StatusOK, nil)
	}
	a.Header.Set("Location", x.At.URL(of.String(), ""))
	return a, nil
}

// Update answers an update, conditional or not. Under scopes that are not about all of the type, one grant must cover
// the resource as it is, and as it will be.
func (x *Writes) Update(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.c.Body)
	switch {
	case err != nil:
		return nil, err
	case !w.isConditional() && after.ID != i.ID:
		return nil, message.Invalid(message.ErrBody, "The id of the resource is not the one in the path.")
	case w.isForwarded():
		return w.forward(ctx)
	case w.isConditional():
		return w.updateMatch(ctx, after)
	}
	return w.updateTo(ctx, after)
}

// updateTo writes a version of the resource that the write names. What is refused whatever the stored version is, is
// refused before that is asked for.
func (w *write) updateTo(ctx context.Context, after *version) (*message.Answer, error) {
	if err := w.may.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	before, err := w.current(ctx)
	if w.in.mayUpsert(w.i.Type, err) {
		return w.upsert(ctx, after)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.may.permit(ctx, before, after); err != nil {
		return nil, err
	}
	return w.send(ctx, w.put(after.text, before.etag))
}

// mayUpsert reports whether what could not be had may be created, because it is not there.
func (x *Writes) mayUpsert(resourceType string, err error) bool {
	return errors.Is(err, errAbsent) && x.Upsert && resourceType != "Patient"
}

// upsert creates a resource under the client's id. A server that knows If-None-Match creates it only if it is not there
// still.
func (w *write) upsert(ctx context.Context, after *version) (*message.Answer, error) {
	if w.c.Header.Get("If-Match") != "" {
		return nil, message.NotFound()
	}
	if _, err := w.may.permit(ctx, nil, after); err != nil {
		return nil, err
	}
	c := w.put(after.text, "")
	c.Header.Set("If-None-Match", "*")
	return w.send(ctx, c)
}

// updateMatch updates the resource that matches the criteria, or creates one (R4 http.html#cond-update).
func (w *write) updateMatch(ctx context.Context, after *version) (*message.Answer, error) {
	id, err := w.criteria.One(ctx)
	switch {
	case err != nil:
		return nil, err
	case id == "" && after.ID == "": // SMART counts that as an update
		if _, err := w.may.permit(ctx, nil, after); err != nil {
			return nil, err
		}
		return w.send(ctx, w.post(after.text))
	case id == "":
		return w.upsertUnmatched(ctx, after)
	case after.ID != "" && after.ID != id:
		return nil, message.Invalid(message.ErrBody, "The id of the resource is not that of the one that matches the criteria.")
	}
	w.i.ID = id
	text, err := rawjson.With(after.text, "id", []byte(strconv.Quote(id)))
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(text); err != nil {
		return nil, err
	}
	return w.updateTo(ctx, after)
}

// upsertUnmatched creates one with the client's id, which must not be that of a resource that the criteria passed over.
func (w *write) upsertUnmatched(ctx context.Context, after *version) (*message.Answer, error) {
	w.i.ID = after.ID
	if err := w.may.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	_, err := w.current(ctx)
	switch {
	case w.in.mayUpsert(w.i.Type, err):
		return w.upsert(ctx, after)
	case err != nil:
		return nil, err
	}
	return nil, &guard.Error{Status: http.StatusConflict, Description: "The resource with that id does not match the criteria.", Err: errConflict}
}

// Delete answers a delete, conditional or not. Under scopes that are not about all of the type, what is not there, was
// deleted or is not covered is not found: that it has been deleted, as R4 would have it, could be wrong, and for a
// record that is to vanish a wrong yes is worse than a no.
//
// Some servers, HAPI among them, ignore If-Match on a delete. So where the server has conditional deletes, it deletes the
// resource only as long as the grant that allows it covers it.
func (x *Writes) Delete(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	switch {
	case err != nil:
		return nil, err
	case w.isForwarded():
		return w.forward(ctx)
	}
	if err := w.resolve(ctx); err != nil {
		return nil, err
	}
	before, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	g, err := w.may.permit(ctx, before, nil)
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: w.i.Type, ID: w.i.ID}
	del, confined := w.confinedDelete(ctx, g, before)
	if confined {
		w.confined = of
	} else {
		del = message.Call{Method: http.MethodDelete, Path: of.String()}
	}
	del.Header = http.Header{"If-Match": {before.etag}}
	a, err := w.send(ctx, del)
	if err != nil || !a.Succeeded() {
		return a, err
	}
	return message.NewAnswer(http.StatusNoContent, nil), nil
}

// ConditionalDeletes are the types of which the FHIR server deletes what matches criteria, as its CapabilityStatement says.
// The zero value asks for the statement when it is needed, and caches the answer. It is safe for concurrent use and must
// not be copied.
type ConditionalDeletes struct {
	mu      sync.Mutex
	types   map[string]bool
	expires time.Time
}

const (
	// capabilitiesTTL is how long a CapabilityStatement is relied on.
	capabilitiesTTL = time.Hour
	// capabilitiesRetry is the time until it is requested again if it could not be read.
	capabilitiesRetry = time.Minute
)

// supports reports whether the FHIR server has conditional deletes of a type. If the statement cannot be read, it has none.
func (d *ConditionalDeletes) supports(ctx context.Context, server *fhirserver.Server, resourceType string) bool {
	d.mu.Lock()
	types, expires := d.types, d.expires
	d.mu.Unlock()
	if time.Now().Before(expires) {
		return types[resourceType]
	}
	types, err := conditionalDeletes(ctx, server)
	if ctx.Err() != nil {
		return types[resourceType]
	}
	ttl := capabilitiesTTL
	if err != nil {
		ttl = capabilitiesRetry
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.types, d.expires = types, time.Now().Add(ttl)
	return types[resourceType]
}

// conditionalDeletes reads the server's statement.
func conditionalDeletes(ctx context.Context, server *fhirserver.Server) (map[string]bool, error) {
	a, err := server.Ask(ctx, message.Get("metadata", ""))
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, message.Failed(a)
	}
	var statement struct {
		Rest []struct {
			Mode     string
			Resource []struct{ Type, ConditionalDelete string }
		}
	}
	if err := json.Unmarshal(a.Body, &statement); err != nil {
		return nil, err
	}
	types := map[string]bool{}
	for _, rest := range statement.Rest {
		for _, r := range rest.Resource {
			if rest.Mode == "server" && (r.ConditionalDelete == "single" || r.ConditionalDelete == "multiple") {
				types[r.Type] = true
			}
		}
	}
	return types, nil
}

// confinedDelete is the call that deletes a version only as long as the grant covers it: if somebody moves the resource to
// another patient after it was judged, it no longer matches. Ok is false if the FHIR server or the type has no such call.
func (w *write) confinedDelete(ctx context.Context, g access.Grant, before *version) (c message.Call, ok bool) {
	criteria := w.in.Judge.Rights().Criteria(g, before.Resource)
	if len(criteria) == 0 || !w.in.ConditionalDeletes.supports(ctx, w.in.Server, w.i.Type) {
		return c, false
	}
	criteria = slices.Concat([]smart.Parameter{{Name: "_id", Value: w.i.ID}}, criteria)
	return message.Call{Method: http.MethodDelete, Path: w.i.Type, Query: smart.EncodeParameters(criteria)}, true
}

// checkDeleted reports whether a resource is gone after a confined delete. Servers answer alike whether or not the criteria
// matched.
func (w Result) checkDeleted(ctx context.Context) error {
	a, err := w.server.Ask(ctx, message.Get(w.Confined.String(), ""))
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return nil
	case a.Status/100 == 5, a.Status == http.StatusTooManyRequests:
		return message.Failed(a)
	}
	return conflict(w.C.Header)
}

// put is the call that writes a version.
func (w *write) put(body []byte, etag string) message.Call {
	c := message.Call{Method: http.MethodPut, Path: w.i.Type + "/" + w.i.ID, Header: w.headers(), Body: body}
	if etag != "" {
		c.Header.Set("If-Match", etag)
	}
	return c
}

// post is the call that creates a resource.
func (w *write) post(body []byte) message.Call {
	return message.Call{Method: http.MethodPost, Path: w.i.Type, Header: w.headers(), Body: body}
}

// headers are what the FHIR server is told along with a write: of what the body is, and how much the client wants back.
func (w *write) headers() http.Header {
	header := http.Header{"Content-Type": {message.TypeJSON}}
	for _, value := range w.c.Header.Values("Prefer") {
		for _, preference := range []string{"return=minimal", "return=representation", returnOutcome} {
			if strings.Contains(value, preference) {
				header.Set("Prefer", preference)
			}
		}
	}
	for _, name := range []string{"X-Cascade", "X-Provenance"} { // newWrite has checked them
		if value := w.c.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// forward has the FHIR server do what the client asked for, on the condition that the client set.
func (w *write) forward(ctx context.Context) (*message.Answer, error) {
	query, ifNoneExist := w.forwardedCriteria()
	c := w.c
	c.Header, c.Query = w.headers(), query
	if ifNoneExist != nil {
		c.Header["If-None-Exist"] = ifNoneExist
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if values := w.c.Header.Values(name); len(values) > 0 {
			c.Header[name] = values
		}
	}
	if media := w.c.Header.Get("Content-Type"); media != "" {
		c.Header.Set("Content-Type", media)
	}
	return w.send(ctx, c)
}

// send has the FHIR server write, and tells the client what came of it as far as it may know. In a transaction, it waits
// for the other entries.
func (w *write) send(ctx context.Context, c message.Call) (*message.Answer, error) {
	if w.in.Collect != nil {
		return w.in.Collect(w.result(), c)
	}
	a, err := w.in.Server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.result().Told(ctx, a)
}

func (w *write) result() Result {
	return Result{Judge: w.in.Judge, at: w.in.At, C: w.c, i: w.i, Confined: w.confined, server: w.in.Server}
}

// Told is what the client is told of the FHIR server's answer to a write.
func (w Result) Told(ctx context.Context, a *message.Answer) (*message.Answer, error) {
	if !a.Succeeded() {
		return w.failure(a)
	}
	if w.Confined != (interaction.Reference{}) {
		if err := w.checkDeleted(ctx); err != nil {
			return nil, err
		}
	}
	if w.wantsOutcome() {
		a = a.With(w.outcome(a))
		a.Said = true
		a.Header.Set("Content-Type", message.TypeJSON)
		return a, nil
	}
	if !w.isShown(ctx, a) {
		a = a.With(nil)
		a.Header.Del("X-Security-Context") // an element of a Binary
	}
	return a, nil
}

// returnOutcome is the preference for an OperationOutcome (R4 http.html#ops).
const returnOutcome = "return=OperationOutcome"

func (w Result) wantsOutcome() bool {
	return slices.ContainsFunc(w.C.Header.Values("Prefer"), func(v string) bool { return strings.Contains(v, returnOutcome) })
}

// outcome is what the client is told of a write as it has asked for it: that it is done, and what the FHIR server says of
// what was sent.
func (w Result) outcome(a *message.Answer) []byte {
	issues := []message.Issue{{Severity: "information", Code: "informational", Diagnostics: "The FHIR server has done the write."}}
	for _, i := range message.IssuesOf(a, w.C.Said()) {
		if i.Diagnostics != "" {
			issues = append(issues, i)
		}
	}
	text, _ := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues}) // strings never fail
	return text
}

// isShown reports whether an answer is the written resource, and one that the client may read. What cannot be judged is
// not shown; the write has been done all the same.
func (w Result) isShown(ctx context.Context, a *message.Answer) bool {
	grants := w.Judge.Rights().For(w.i.Type, smart.Read)
	if len(grants) == 0 || !a.IsJSON() {
		return false
	}
	res, err := resource.Parse(a.Body, w.at.Base)
	if err != nil || res.Type != w.i.Type || w.i.ID != "" && res.ID != w.i.ID {
		return false
	}
	ok, err := w.Judge.Covered(ctx, res, grants)
	return ok && err == nil
}

var (
	errConflict = errors.New("conflicts with the current version")
	errRefused  = errors.New("the FHIR server refuses the write")
)

// failure is what a client is told if the FHIR server has not written: the status, and what is wrong with what the client
// has sent. What a patch came to is told nobody who may not read it.
func (w Result) failure(a *message.Answer) (*message.Answer, error) {
	isPatch := w.i.Kind == interaction.Patch || w.i.Kind == interaction.ConditionalPatch
	if isPatch && len(w.Judge.Rights().For(w.i.Type, smart.Read)) == 0 {
		return nil, w.Refusal(a, nil)
	}
	s := w.C.Said()
	if outcome := message.Invalidated(a, s); outcome != nil {
		return outcome, nil
	}
	return nil, w.Refusal(a, s)
}

// Refusal is the server's refusal, with what it says of what the client has sent.
func (w Result) Refusal(a *message.Answer, s message.Said) error {
	cause := fmt.Errorf("%w: %d", errRefused, a.Status)
	switch status := a.Status; {
	case status == http.StatusTooManyRequests, status/100 == 5:
		return message.Failed(a)
	case status == http.StatusNotFound || status == http.StatusGone:
		return message.NotFound()
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return conflict(w.C.Header)
	case status/100 != 4, status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not write.", Err: cause}
	default:
		return &guard.Error{Status: status, Description: message.Explained(message.RefusesWrite, a, s), Err: cause}
	}
}

// conflict is the status for a client that set a condition, or for one that did not (RFC 9110 §13.1.1, §15.5.10).
func conflict(header http.Header) error {
	refusal := &guard.Error{
		Status: http.StatusConflict, Err: errConflict,
		Description: "The resource was changed in the meantime, or others refer to it.",
	}
	if header.Get("If-Match") != "" {
		refusal.Status = http.StatusPreconditionFailed
	}
	return refusal
}
