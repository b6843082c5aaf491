// Package write answers writes. A single grant must cover a resource both before and after the write.
//
//	write.go       create, update and delete, conditional or not; the version that is changed; the response to the client
//	patch.go       applies a JSON Patch and sends an update; forwards a FHIRPath Patch if it is plain
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

// writePermission decides whether the grants allow a write.
type writePermission struct {
	judge        *judge.Judge
	typeRules    access.TypeRules
	resourceType string
	grants       []access.Grant
}

// Result determines the response to a write.
type Result struct {
	Judge       *judge.Judge // judges whether the client may see the response
	addresses   message.Addresses
	ClientCall  message.Call // the call as sent by the client, e.g. with Prefer
	interaction interaction.Interaction
	// ConfinedTo is the resource of a confined delete (see [write.confinedDelete]); zero for all other writes.
	ConfinedTo interaction.Reference
	server     *fhirserver.Server
}

// Collector receives the call for the FHIR server instead of sending it, together with the data for the response.
type Collector func(r Result, c message.Call) (*message.Response, error)

// Handler answers the writes of one request.
type Handler struct {
	Server        *fhirserver.Server // sends requests to the FHIR server
	Judge         *judge.Judge       // judges responses from the FHIR server
	Addresses     message.Addresses  // public addresses of the FHIR API
	SearchHandler *search.Handler    // resolves criteria
	ReadHandler   *read.Handler      // reads the stored version
	TypeRules     access.TypeRules   // rules for types outside of compartments
	AllowsUpsert  bool               // whether an update may create a resource

	ConditionalDeletes *ConditionalDeletes // conditional deletes that the FHIR server supports

	MaxBodyBytes int64     // maximum size of a request body in bytes
	Collector    Collector // nil if writes are sent immediately
}

// write is a create, update, patch or delete in progress.
type write struct {
	handler        *Handler
	call           message.Call
	interaction    interaction.Interaction
	permission     writePermission
	isUnrestricted bool                  // a grant covers all resources of the type
	criteria       *search.Selection     // criteria of a conditional write
	confinedTo     interaction.Reference // see [Result.ConfinedTo]
}

// isCascade reports whether a parameter makes HAPI also delete the resources that refer to the deleted one.
func isCascade(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_cascade"
}

// version is a stored or new version of a resource.
type version struct {
	resource.Resource
	text []byte
	etag string // ETag of the stored version, for If-Match
}

// isConditional reports whether criteria select the resource to write.
func (w *write) isConditional() bool { return w.interaction.Permission()&smart.Search != 0 }

// planCriteria returns the search for the criteria of a conditional write.
func (x *Handler) planCriteria(ctx context.Context, i interaction.Interaction) (*search.Selection, error) {
	s, err := x.SearchHandler.PlanSelection(ctx, i.Type, slices.DeleteFunc(i.Criteria(), isCascade))
	if err == nil && !s.HasOnlyConditions {
		err = message.InvalidRequest(message.ErrInvalidSearch, "Criteria of a conditional request may only contain search parameters that select resources.")
	}
	return s, err
}

// isForwarded reports whether the FHIR server executes the client's own request, because the scopes cover every resource that
// it may find and change.
func (w *write) isForwarded() bool {
	return w.isUnrestricted && (!w.isConditional() || !w.criteria.MatchesNothing && w.handler.Judge.Rights().IsUnrestricted(w.interaction.Type, smart.Search))
}

// forwardedCriteria returns the query and If-None-Exist with the criteria for the FHIR server, after applying the search rules.
func (w *write) forwardedCriteria() (query string, ifNoneExist []string) {
	switch {
	case !w.isConditional():
		return w.call.Query, nil
	case w.interaction.Kind == interaction.ConditionalCreate:
		return w.call.Query, []string{smart.EncodeParameters(w.criteria.Parameters)}
	}
	cascade := slices.DeleteFunc(slices.Clone(w.interaction.Parameters), func(p smart.Parameter) bool { return !isCascade(p) })
	return smart.EncodeParameters(slices.Concat(w.criteria.Parameters, cascade)), nil
}

// resolve sets the interaction's id to that of the resource that matches the criteria.
func (w *write) resolve(ctx context.Context) error {
	if !w.isConditional() {
		return nil
	}
	id, err := w.criteria.FindOne(ctx)
	if err == nil && id == "" {
		err = message.NotFound()
	}
	w.interaction.ID = id
	return err
}

// newWrite returns the state of a write. It returns an error for writes that no scope permits, whatever the resource.
func (x *Handler) newWrite(ctx context.Context, c message.Call, i interaction.Interaction) (*write, error) {
	p, rights := i.Permission()&^smart.Search, x.Judge.Rights()
	w := &write{handler: x, call: c, interaction: i, isUnrestricted: rights.IsUnrestricted(i.Type, p) && (p == smart.Delete || len(rights.PatientsWithBinaries(i.Type)) == 0)}
	w.permission = writePermission{judge: x.Judge, typeRules: x.TypeRules, resourceType: i.Type, grants: rights.GrantsFor(i.Type, p)}
	switch {
	case len(w.permission.grants) == 0:
		return nil, message.InsufficientScope(rights, i)
	case i.Type == "Patient" && p&(smart.Create|smart.Delete) != 0:
		w.permission.grants = slices.DeleteFunc(w.permission.grants, func(g access.Grant) bool { return g.Patient != "" })
	}
	if len(w.permission.grants) == 0 {
		return nil, message.Forbidden(message.ErrInsufficientScope, "Scopes that are bound to a patient do not allow creating or deleting a Patient.").WithScope(message.MissingScopes(rights, i))
	}
	if extra := w.extraEffect(); extra != "" {
		return nil, message.Forbidden(message.ErrInsufficientScope, "%s is not allowed with these scopes.", extra)
	}
	var err error
	if w.isConditional() {
		w.criteria, err = x.planCriteria(ctx, i)
	}
	return w, err
}

// extraEffect describes an effect of the request on other resources that no scope allows; empty if there is none.
func (w *write) extraEffect() string {
	switch {
	case !MayAffectOthers(w.handler.Judge.Rights(), w.call.Header, w.interaction):
		return "Writing additional resources (_cascade, X-Cascade, X-Provenance)"
	case !w.isUnrestricted && !w.isConditional() && len(w.interaction.Criteria()) > 0:
		return "The parameter " + strconv.Quote(w.interaction.Criteria()[0].Name)
	}
	return ""
}

// MayAffectOthers reports whether the scopes allow effects of a write on all other resources: on HAPI, those that refer to a
// deleted one, and a Provenance (R4 provenance.html#header).
func MayAffectOthers(rights *access.Rights, header http.Header, i interaction.Interaction) bool {
	if header.Get("X-Provenance") != "" && (!rights.IsUnrestricted(smart.AnyType, smart.Search) || !rights.IsUnrestricted("Provenance", smart.Create)) {
		return false
	}
	isCascading := header.Get("X-Cascade") != "" || slices.ContainsFunc(i.Parameters, isCascade)
	return !isCascading || rights.IsUnrestricted(smart.AnyType, smart.Delete)
}

// newVersion parses the resource in the client's body.
func (w *write) newVersion(text []byte) (*version, error) {
	res, err := resource.Parse(text, w.handler.Addresses.Base)
	switch {
	case err != nil:
		return nil, message.InvalidRequest(err, "The body must be a resource in valid JSON without duplicate names.")
	case res.Type != w.interaction.Type:
		return nil, message.InvalidRequest(message.ErrInvalidBody, "The type of the resource does not match the path.")
	}
	if err := w.handler.checkSideEffect(res, text); err != nil {
		return nil, err
	}
	return &version{Resource: res, text: text}, checkConditionalReferences(w.handler.Judge.Rights(), text)
}

// errNotFound means that a resource does not exist. Clients get the same error as for [message.ErrNotCovered].
var errNotFound = fmt.Errorf("%w: it does not exist", message.ErrNotCovered)

// readCurrent reads the version to change. An uncovered resource is handled like a missing one.
func (w *write) readCurrent(ctx context.Context) (*version, error) {
	of := interaction.Reference{Type: w.interaction.Type, ID: w.interaction.ID}
	a, err := w.handler.Server.Do(ctx, message.NewGet(of.String(), ""))
	if err != nil {
		return nil, err
	}
	res, err := w.handler.Judge.ReadForUpdate(ctx, of, w.permission.grants, a)
	rejection, _ := errors.AsType[*guard.Error](err)
	switch {
	case rejection != nil && errors.Is(err, message.ErrNotCovered) && a.Status == http.StatusNotFound:
		rejection.Err = errNotFound
		return nil, rejection
	case err != nil:
		return nil, err
	}
	return w.currentVersion(res, a)
}

var errNoVersion = errors.New("FHIR server returned neither an ETag nor a version, so the resource could change between the check and the write")

// currentVersion returns the version with the ETag for If-Match, or an error if it does not meet the client's conditions.
func (w *write) currentVersion(res resource.Resource, a *message.Response) (*version, error) {
	etag := a.Header.Get("Etag")
	if etag == "" && res.VersionID != "" {
		etag = `W/"` + res.VersionID + `"`
	}
	if etag == "" {
		return nil, message.NewWithheldError(errNoVersion)
	}
	ifMatch, ifNoneMatch := w.call.Header.Values("If-Match"), w.call.Header.Values("If-None-Match")
	if len(ifMatch) > 0 && !namesETag(ifMatch, etag) || namesETag(ifNoneMatch, etag) {
		return nil, &guard.Error{Status: http.StatusPreconditionFailed, Description: "The version of the resource does not match If-Match.", Err: errConflict}
	}
	return &version{res, a.Body, etag}, nil
}

// namesETag reports whether a condition contains the ETag or *.
func namesETag(condition []string, etag string) bool {
	return slices.Contains(condition, "*") || message.IsNotModified(http.Header{"If-None-Match": condition}, etag)
}

// Create answers a create, conditional or not. The id in the body is ignored (R4 http.html#create).
func (x *Handler) Create(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.call.Body)
	if err != nil {
		return nil, err
	}
	if w.isForwarded() {
		return w.forward(ctx)
	}
	body, err := rawjson.WithoutMember(after.text, "id")
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(body); err != nil {
		return nil, err
	}
	if _, err := w.permission.allowingGrant(ctx, nil, after); err != nil {
		return nil, err
	}
	if w.isConditional() {
		id, err := w.criteria.FindOne(ctx)
		if err != nil || id != "" {
			return x.existingResponse(ctx, i.Type, id, err)
		}
	}
	return w.send(ctx, w.postCall(body))
}

// existingResponse returns the response to a conditional create of a resource that already exists (R4 http.html#ccreate).
func (x *Handler) existingResponse(ctx context.Context, resourceType, id string, err error) (*message.Response, error) {
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: resourceType, ID: id}
	a, err := x.ReadHandler.Read(ctx, message.NewGet(of.String(), ""), interaction.Interaction{Kind: interaction.Read, Type: of.Type, ID: of.ID})
	if err != nil {
		a = message.NewResponse(http.StatusOK, nil)
	}
	a.Header.Set("Location", x.Addresses.URL(of.String(), ""))
	return a, nil
}

// Update answers an update, conditional or not. Unless the scopes cover all resources of the type, a single grant must cover
// the resource both before and after the update.
func (x *Handler) Update(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.call.Body)
	switch {
	case err != nil:
		return nil, err
	case !w.isConditional() && after.ID != i.ID:
		return nil, message.InvalidRequest(message.ErrInvalidBody, "The id of the resource does not match the path.")
	case w.isForwarded():
		return w.forward(ctx)
	case w.isConditional():
		return w.updateMatch(ctx, after)
	}
	return w.updateVersion(ctx, after)
}

// updateVersion writes a version of the resource with the write's id. A new version that no grant covers is rejected before the
// stored version is read.
func (w *write) updateVersion(ctx context.Context, after *version) (*message.Response, error) {
	if err := w.permission.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	before, err := w.readCurrent(ctx)
	if w.handler.mayUpsert(w.interaction.Type, err) {
		return w.upsert(ctx, after)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.permission.allowingGrant(ctx, before, after); err != nil {
		return nil, err
	}
	return w.send(ctx, w.putCall(after.text, before.etag))
}

// mayUpsert reports whether err permits creating the resource, because it means that the resource does not exist.
func (x *Handler) mayUpsert(resourceType string, err error) bool {
	return errors.Is(err, errNotFound) && x.AllowsUpsert && resourceType != "Patient"
}

// upsert creates a resource with the client's id. If-None-Match prevents FHIR servers that support it from overwriting a
// resource created in the meantime.
func (w *write) upsert(ctx context.Context, after *version) (*message.Response, error) {
	if w.call.Header.Get("If-Match") != "" {
		return nil, message.NotFound()
	}
	if _, err := w.permission.allowingGrant(ctx, nil, after); err != nil {
		return nil, err
	}
	c := w.putCall(after.text, "")
	c.Header.Set("If-None-Match", "*")
	return w.send(ctx, c)
}

// updateMatch updates the resource that matches the criteria, or creates one (R4 http.html#cond-update).
func (w *write) updateMatch(ctx context.Context, after *version) (*message.Response, error) {
	id, err := w.criteria.FindOne(ctx)
	switch {
	case err != nil:
		return nil, err
	case id == "" && after.ID == "": // SMART treats this as an update
		if _, err := w.permission.allowingGrant(ctx, nil, after); err != nil {
			return nil, err
		}
		return w.send(ctx, w.postCall(after.text))
	case id == "":
		return w.upsertUnmatched(ctx, after)
	case after.ID != "" && after.ID != id:
		return nil, message.InvalidRequest(message.ErrInvalidBody, "The id of the resource does not match the resource that the criteria select.")
	}
	w.interaction.ID = id
	text, err := rawjson.WithMember(after.text, "id", []byte(strconv.Quote(id)))
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(text); err != nil {
		return nil, err
	}
	return w.updateVersion(ctx, after)
}

// upsertUnmatched creates a resource with the client's id. The id must be unused: the criteria would not match its resource.
func (w *write) upsertUnmatched(ctx context.Context, after *version) (*message.Response, error) {
	w.interaction.ID = after.ID
	if err := w.permission.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	_, err := w.readCurrent(ctx)
	switch {
	case w.handler.mayUpsert(w.interaction.Type, err):
		return w.upsert(ctx, after)
	case err != nil:
		return nil, err
	}
	return nil, &guard.Error{Status: http.StatusConflict, Description: "The resource with that id does not match the criteria.", Err: errConflict}
}

// Delete answers a delete, conditional or not. Unless the scopes cover all resources of the type, a resource that is missing,
// already deleted or not covered gets 404. R4 permits reporting success, but that could be wrong, which is worse for a record
// that must be erased.
//
// Some FHIR servers, such as HAPI, ignore If-Match on a delete. If the server supports conditional deletes, the delete
// therefore has criteria that match only as long as the grant covers the resource.
func (x *Handler) Delete(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
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
	before, err := w.readCurrent(ctx)
	if err != nil {
		return nil, err
	}
	g, err := w.permission.allowingGrant(ctx, before, nil)
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: w.interaction.Type, ID: w.interaction.ID}
	del, confined := w.confinedDelete(ctx, g, before)
	if confined {
		w.confinedTo = of
	} else {
		del = message.Call{Method: http.MethodDelete, Path: of.String()}
	}
	del.Header = http.Header{"If-Match": {before.etag}}
	a, err := w.send(ctx, del)
	if err != nil || !a.IsSuccess() {
		return a, err
	}
	return message.NewResponse(http.StatusNoContent, nil), nil
}

// ConditionalDeletes contains the types for which the FHIR server's CapabilityStatement declares conditional deletes. The zero
// value reads the statement when needed and caches it. It is safe for concurrent use and must not be copied.
type ConditionalDeletes struct {
	mu      sync.Mutex
	types   map[string]bool
	expires time.Time
}

const (
	// capabilitiesTTL is how long a CapabilityStatement is cached.
	capabilitiesTTL = time.Hour
	// capabilitiesRetry is how long to wait before reading the CapabilityStatement again after a failure.
	capabilitiesRetry = time.Minute
)

// supports reports whether the FHIR server supports conditional deletes of a type. It returns false if the server's
// CapabilityStatement cannot be read.
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

// conditionalDeletes returns the types with conditional deletes in the FHIR server's statement.
func conditionalDeletes(ctx context.Context, server *fhirserver.Server) (map[string]bool, error) {
	a, err := server.Do(ctx, message.NewGet("metadata", ""))
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, message.ServerFailure(a)
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

// confinedDelete returns a call that deletes a version only as long as the grant covers it: a resource that another client
// moves to another patient no longer matches. ok is false if the FHIR server or the type does not support such a call.
func (w *write) confinedDelete(ctx context.Context, g access.Grant, before *version) (c message.Call, ok bool) {
	criteria := w.handler.Judge.Rights().Criteria(g, before.Resource)
	if len(criteria) == 0 || !w.handler.ConditionalDeletes.supports(ctx, w.handler.Server, w.interaction.Type) {
		return c, false
	}
	criteria = slices.Concat([]smart.Parameter{{Name: "_id", Value: w.interaction.ID}}, criteria)
	return message.Call{Method: http.MethodDelete, Path: w.interaction.Type, Query: smart.EncodeParameters(criteria)}, true
}

// checkDeleted returns an error if a resource still exists after a confined delete. FHIR servers send the same response whether
// or not the criteria matched.
func (w Result) checkDeleted(ctx context.Context) error {
	a, err := w.server.Do(ctx, message.NewGet(w.ConfinedTo.String(), ""))
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return nil
	case a.Status/100 == 5, a.Status == http.StatusTooManyRequests:
		return message.ServerFailure(a)
	}
	return conflictError(w.ClientCall.Header)
}

// putCall returns the call that writes a version.
func (w *write) putCall(body []byte, etag string) message.Call {
	c := message.Call{Method: http.MethodPut, Path: w.interaction.Type + "/" + w.interaction.ID, Header: w.requestHeaders(), Body: body}
	if etag != "" {
		c.Header.Set("If-Match", etag)
	}
	return c
}

// postCall returns the call that creates a resource.
func (w *write) postCall(body []byte) message.Call {
	return message.Call{Method: http.MethodPost, Path: w.interaction.Type, Header: w.requestHeaders(), Body: body}
}

// requestHeaders returns the headers of a write: the content type and the client's preference for the response.
func (w *write) requestHeaders() http.Header {
	header := http.Header{"Content-Type": {message.TypeJSON}}
	for _, value := range w.call.Header.Values("Prefer") {
		for _, preference := range []string{"return=minimal", "return=representation", returnOutcome} {
			if strings.Contains(value, preference) {
				header.Set("Prefer", preference)
			}
		}
	}
	for _, name := range []string{"X-Cascade", "X-Provenance"} { // newWrite has checked these
		if value := w.call.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// forward forwards the client's request, including its conditions.
func (w *write) forward(ctx context.Context) (*message.Response, error) {
	query, ifNoneExist := w.forwardedCriteria()
	c := w.call
	c.Header, c.Query = w.requestHeaders(), query
	if ifNoneExist != nil {
		c.Header["If-None-Exist"] = ifNoneExist
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if values := w.call.Header.Values(name); len(values) > 0 {
			c.Header[name] = values
		}
	}
	if media := w.call.Header.Get("Content-Type"); media != "" {
		c.Header.Set("Content-Type", media)
	}
	return w.send(ctx, c)
}

// send sends a write to the FHIR server and returns the client's response. In a transaction, the write is collected instead.
func (w *write) send(ctx context.Context, c message.Call) (*message.Response, error) {
	if w.handler.Collector != nil {
		return w.handler.Collector(w.result(), c)
	}
	a, err := w.handler.Server.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.result().ClientResponse(ctx, a)
}

func (w *write) result() Result {
	return Result{Judge: w.handler.Judge, addresses: w.handler.Addresses, ClientCall: w.call, interaction: w.interaction, ConfinedTo: w.confinedTo, server: w.handler.Server}
}

// ClientResponse turns the FHIR server's response to a write into the client's response.
func (w Result) ClientResponse(ctx context.Context, a *message.Response) (*message.Response, error) {
	if !a.IsSuccess() {
		return w.failureResponse(a)
	}
	if w.ConfinedTo != (interaction.Reference{}) {
		if err := w.checkDeleted(ctx); err != nil {
			return nil, err
		}
	}
	if w.prefersOutcome() {
		a = a.WithBody(w.writeOutcome(a))
		a.IsOutcome = true
		a.Header.Set("Content-Type", message.TypeJSON)
		return a, nil
	}
	if !w.mayShowResource(ctx, a) {
		a = a.WithBody(nil)
		a.Header.Del("X-Security-Context") // its value is an element of the Binary
	}
	return a, nil
}

// returnOutcome is the Prefer value that requests an OperationOutcome (R4 http.html#ops).
const returnOutcome = "return=OperationOutcome"

func (w Result) prefersOutcome() bool {
	return slices.ContainsFunc(w.ClientCall.Header.Values("Prefer"), func(v string) bool { return strings.Contains(v, returnOutcome) })
}

// writeOutcome returns the requested OperationOutcome: success, and the FHIR server's issues that concern the client's input.
func (w Result) writeOutcome(a *message.Response) []byte {
	issues := []message.Issue{{Severity: "information", Code: "informational", Diagnostics: "The FHIR server completed the write."}}
	for _, i := range message.ClientIssues(a, w.ClientCall.SentTerms()) {
		if i.Diagnostics != "" {
			issues = append(issues, i)
		}
	}
	text, _ := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues}) // marshaling strings never fails
	return text
}

// mayShowResource reports whether a response is the written resource and the client may read it. It returns false if the
// response cannot be judged, although the write succeeded.
func (w Result) mayShowResource(ctx context.Context, a *message.Response) bool {
	grants := w.Judge.Rights().GrantsFor(w.interaction.Type, smart.Read)
	if len(grants) == 0 || !a.IsJSON() {
		return false
	}
	res, err := resource.Parse(a.Body, w.addresses.Base)
	if err != nil || res.Type != w.interaction.Type || w.interaction.ID != "" && res.ID != w.interaction.ID {
		return false
	}
	ok, err := w.Judge.IsCovered(ctx, res, grants)
	return ok && err == nil
}

var (
	errConflict      = errors.New("write conflicts with the current version")
	errWriteRejected = errors.New("FHIR server rejected the write")
)

// failureResponse returns the client's response to a failed write: the status, and the issues that concern the client's input.
// For a patch, the issues describe the patched resource, so they require read access.
func (w Result) failureResponse(a *message.Response) (*message.Response, error) {
	isPatch := w.interaction.Kind == interaction.Patch || w.interaction.Kind == interaction.ConditionalPatch
	if isPatch && len(w.Judge.Rights().GrantsFor(w.interaction.Type, smart.Read)) == 0 {
		return nil, w.RejectionError(a, nil)
	}
	s := w.ClientCall.SentTerms()
	if outcome := message.InvalidBodyResponse(a, s); outcome != nil {
		return outcome, nil
	}
	return nil, w.RejectionError(a, s)
}

// RejectionError returns the error for a rejected write, with the FHIR server's reasons that concern the client's input.
func (w Result) RejectionError(a *message.Response, s message.SentTerms) error {
	cause := fmt.Errorf("%w: %d", errWriteRejected, a.Status)
	switch status := a.Status; {
	case status == http.StatusTooManyRequests, status/100 == 5:
		return message.ServerFailure(a)
	case status == http.StatusNotFound || status == http.StatusGone:
		return message.NotFound()
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return conflictError(w.ClientCall.Header)
	case status/100 != 4, status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server failed to write the resource.", Err: cause}
	default:
		return &guard.Error{Status: status, Description: message.ExplainRejection(message.WriteRejected, a, s), Err: cause}
	}
}

// conflictError returns 412 if the client sent If-Match, otherwise 409 (RFC 9110 §13.1.1, §15.5.10).
func conflictError(header http.Header) error {
	rejection := &guard.Error{
		Status: http.StatusConflict, Err: errConflict,
		Description: "The resource has changed since it was read, or other resources refer to it.",
	}
	if header.Get("If-Match") != "" {
		rejection.Status = http.StatusPreconditionFailed
	}
	return rejection
}
