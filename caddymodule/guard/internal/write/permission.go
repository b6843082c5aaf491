package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// CheckNew returns an error if no grant allows creating a resource.
func (x *Handler) CheckNew(ctx context.Context, res resource.Resource, text []byte, grants []access.Grant) error {
	if err := checkConditionalReferences(x.Judge.Rights(), text); err != nil {
		return err
	}
	may := writePermission{x.Judge, x.TypeRules, res.Type, grants}
	_, err := may.allowingGrant(ctx, nil, &version{Resource: res, text: text})
	return err
}

// allowingGrant returns the first grant that allows changing one version to the other, or an error if none does. before is nil
// for a create, and after is nil for a delete.
func (w writePermission) allowingGrant(ctx context.Context, before, after *version) (g access.Grant, err error) {
	for _, g = range w.grants {
		if err = w.allows(ctx, g, before, after); !errors.Is(err, message.ErrNotCovered) {
			break
		}
	}
	return g, err
}

// allows returns an error if a grant does not allow the change.
func (w writePermission) allows(ctx context.Context, g access.Grant, before, after *version) error {
	for _, v := range []*version{before, after} {
		if v == nil {
			continue
		}
		if ok, err := w.covers(ctx, g, v); err != nil || !ok {
			return cmp.Or(err, error(notCovered(w.resourceType)))
		}
	}
	if after == nil {
		return nil
	}
	if g.Patient != "" || w.judge.MayDeny() {
		if err := w.checkReferences(ctx, g, before, after); err != nil {
			return err
		}
	}
	return w.checkAttachments(ctx, g, before, after)
}

// checkCovered rejects a new version that no grant covers, whatever the stored version.
func (w writePermission) checkCovered(ctx context.Context, after *version) error {
	for _, g := range w.grants {
		if ok, err := w.covers(ctx, g, after); ok || err != nil {
			return err
		}
	}
	return notCovered(w.resourceType)
}

// covers reports whether a policy allows a written version or, if no policy applies, whether a grant covers it.
func (w writePermission) covers(ctx context.Context, g access.Grant, v *version) (bool, error) {
	if effect := w.judge.PolicyEffect(ctx, v.Resource); effect != "" {
		return effect == rule.Allow, nil
	}
	return w.judge.CheckVerdict(ctx, g, w.judge.Rights().CoversNew(g, v.Resource))
}

// notCovered returns the error for a version that no grant covers.
func notCovered(resourceType string) *guard.Error {
	return message.Forbidden(message.ErrNotCovered, "No scope allows writing this %s: both before and after the write, the resource must match the constraint of the same scope "+
		"and refer only to the patient of that scope.", resourceType)
}

// checkReferences rejects new references that would tie a record to an uncovered resource. A missing target causes the same
// rejection, because the FHIR server's own error would reveal whether the target exists.
func (w writePermission) checkReferences(ctx context.Context, g access.Grant, before, after *version) error {
	var old []string
	if before != nil {
		old, _ = message.References(before.text) // was parsed before, so it never fails
	}
	added, err := message.References(after.text)
	if err != nil {
		return message.InvalidRequest(err, "The body must be a resource in valid JSON without duplicate names.")
	}
	for _, literal := range added {
		if slices.Contains(old, literal) {
			continue
		}
		if ok, err := w.mayRefer(ctx, g, after.Resource, literal); err != nil || !ok {
			return cmp.Or(err, error(message.Forbidden(message.ErrNotCovered, "The resource refers to another resource that does not exist or that the access token does not cover.")))
		}
	}
	return nil
}

var errInvalidAttachment = errors.New("attachment URL cannot be checked")

// checkAttachments rejects a DocumentReference to a Binary that the client may not read: read access to a DocumentReference
// includes its Binaries, so the reference would grant access. If the grant is not bound to a patient, this applies to the
// patients with Binaries that the client may read by other grants.
func (w writePermission) checkAttachments(ctx context.Context, g access.Grant, before, after *version) error {
	if after.Type != "DocumentReference" {
		return nil
	}
	if g.Patient != "" {
		return w.checkPatientAttachments(ctx, g.Patient, before, after)
	}
	for _, patient := range w.judge.Rights().PatientsWithBinaries(after.Type) {
		if !access.ReferencesOnlyPatient(after.Resource, patient) {
			continue
		}
		if err := w.checkPatientAttachments(ctx, patient, before, after); err != nil {
			return err
		}
	}
	return nil
}

// checkPatientAttachments is like checkAttachments, but for one patient's record. Binaries to which the record already refers
// are already readable. Every address that ends like a Binary's is treated as an address of this server, which may have other
// host names. A URN is resolved within the transaction, where every entry is judged.
func (w writePermission) checkPatientAttachments(ctx context.Context, patient string, before, after *version) error {
	var old []string
	if before != nil && access.ReferencesOnlyPatient(before.Resource, patient) {
		old = access.AttachmentURLs(before.Resource)
	}
	for _, address := range access.AttachmentURLs(after.Resource) {
		if slices.Contains(old, address) || !namesBinary(address) {
			continue
		}
		match := message.ResourceURL.FindStringSubmatch(address)
		if match == nil {
			return message.Forbidden(errInvalidAttachment, "The URL of an attachment refers to a Binary in an unsupported form: use Binary/id.")
		}
		resourceType, id, _ := strings.Cut(message.WithoutVersion(match[1]), "/")
		ok, err := w.judge.MayAttach(ctx, patient, interaction.Reference{Type: resourceType, ID: id})
		if err != nil || !ok || resourceType != "Binary" {
			return cmp.Or(err, error(message.Forbidden(message.ErrNotCovered, "An attachment refers to a Binary that does not exist or that the access token does not cover.")))
		}
	}
	return nil
}

// namesBinary reports whether a server might interpret an address as that of a Binary.
func namesBinary(address string) bool {
	if unescaped, err := url.PathUnescape(address); err == nil {
		address += " " + unescaped
	}
	visible := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, address)
	return strings.Contains(strings.ToLower(visible), "binary/")
}

// mayRefer reports whether a resource may refer to another if the grant is bound to a patient or policies may deny the target.
func (w writePermission) mayRefer(ctx context.Context, g access.Grant, from resource.Resource, literal string) (bool, error) {
	if strings.HasPrefix(literal, "#") || strings.HasPrefix(literal, "urn:") {
		return true, nil
	}
	to, ok := from.ParseReference(literal)
	switch {
	case !ok:
		return false, nil
	case w.typeRules.MayBeReferenced(to.Type) && !w.judge.MayDeny():
		return true, nil
	case to.Base != "": // to.Base may be the server itself under another host name
		return false, nil
	case to.Type == "Patient" && g.Patient != "":
		return to.ID == g.Patient, nil
	}
	return w.judge.IsInRecord(ctx, g, interaction.Reference{Type: to.Type, ID: to.ID})
}

// checkConditionalReferences rejects references that are searches (R4 http.html#trules) unless the client may search all
// resources of the type. Some servers also resolve them outside of transactions.
func checkConditionalReferences(rights *access.Rights, text []byte) error {
	all, err := message.References(text)
	if err != nil {
		return message.InvalidRequest(err, "The body must be a resource in valid JSON without duplicate names.")
	}
	for _, literal := range all {
		if err := checkConditionalReference(rights, literal); err != nil {
			return err
		}
	}
	return nil
}

// maxConditionalReferences is the maximum number of conditional references in a body.
const maxConditionalReferences = 16

// resolveReferences replaces conditional references by the resources that the client's own searches find. References that no
// scope allows remain and are rejected later. In a forwarded write, all of them remain for the FHIR server.
func (w *write) resolveReferences(ctx context.Context) error {
	if w.isForwarded() {
		return nil
	}
	all, _ := message.References(w.call.Body) // malformed bodies are rejected later
	slices.Sort(all)
	conditional := slices.DeleteFunc(slices.Compact(all), func(literal string) bool {
		of, _, hasQuery := strings.Cut(literal, "?")
		return !hasQuery || !interaction.IsType(of) || len(w.handler.Judge.Rights().GrantsFor(of, smart.Search)) == 0
	})
	if len(conditional) > maxConditionalReferences {
		return message.TooCostly("With these scopes, a resource may contain at most %d conditional references.", maxConditionalReferences)
	}
	for _, literal := range conditional {
		found, err := w.handler.resolveReference(ctx, literal)
		if err != nil {
			return err
		}
		w.call.Body = bytes.ReplaceAll(w.call.Body, []byte(message.QuoteJSON(literal)), []byte(message.QuoteJSON(found)))
	}
	return nil
}

// resolveReference returns the single resource that a conditional reference selects (R4 http.html#trules).
func (x *Handler) resolveReference(ctx context.Context, literal string) (string, error) {
	of, criteria, _ := strings.Cut(literal, "?")
	parameters, err := smart.ParseParameters(criteria)
	if err != nil {
		return "", message.InvalidRequest(err, "A conditional reference is ambiguous.")
	}
	found, err := x.SearchHandler.PlanSelection(ctx, of, parameters)
	if err != nil {
		return "", err
	}
	id, err := found.FindOne(ctx)
	if err == nil && id == "" {
		err = &guard.Error{
			Status: http.StatusPreconditionFailed, Err: message.ErrNotCovered,
			Description: "A conditional reference to " + of + " matches nothing that the access token covers.",
		}
	}
	return of + "/" + id, err
}

// checkConditionalReference returns an error unless the scopes allow a conditional reference.
func checkConditionalReference(rights *access.Rights, literal string) error {
	path, criteria, hasQuery := strings.Cut(literal, "?")
	if !hasQuery || rights.IsUnrestricted(smart.AnyType, smart.Search) {
		return nil
	}
	of := path[strings.LastIndexByte(path, '/')+1:]
	if !interaction.IsType(of) {
		return message.Forbidden(message.ErrDisclosure, "A reference with a question mark is a conditional reference, which no scope allows for all types.")
	}
	if list, err := smart.ParseParameters(criteria); err != nil || !rights.IsUnrestricted(of, smart.Search) || involvesOtherResources(list) {
		return message.Forbidden(message.ErrDisclosure, "A conditional reference to %s is a search, and no scope covers all resources that it may reveal.", of)
	}
	return nil
}

// involvesOtherResources reports whether a search involves resources other than its matches.
func involvesOtherResources(list []smart.Parameter) bool {
	for _, p := range list {
		switch name, _, _ := strings.Cut(p.Name, ":"); {
		case name == "_has", name == "_filter", name == "_list", name == "_query", strings.Contains(p.Name, "."):
			return true
		}
	}
	return false
}

// MayHaveSideEffects reports whether storing a resource of the type could make the FHIR server send or request more than the
// token permits. This does not apply to a token that may read and search everything.
func MayHaveSideEffects(rights *access.Rights, resourceType string) bool {
	return !rights.IsUnrestricted(smart.AnyType, message.ReadSearch) && access.SideEffectOf(resourceType) != access.Inert
}

// checkSideEffect rejects a version that could make the FHIR server send or request data that no scope allows.
func (x *Handler) checkSideEffect(res resource.Resource, text []byte) error {
	if !MayHaveSideEffects(x.Judge.Rights(), res.Type) {
		return nil
	}
	switch access.SideEffectOf(res.Type) {
	case access.NotifiesRecipients:
		return x.checkSubscription(res, text)
	case access.TriggersSearches:
		return x.checkTask(res)
	case access.MayContainOthers:
		return x.checkContainer(res, text)
	}
	return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrDisclosure, "Writing a %s affects other clients' results: this requires scopes to read and search all resources.", res.Type)
}

// maySearch reports whether the token may read all matches of a search that are not judged later. The search must use the
// type's own parameters. A scope must cover the entire type, or the criteria must literally contain the scope's constraint.
func (x *Handler) maySearch(criteria string) bool {
	path, query, _ := strings.Cut(criteria, "?")
	i, err := interaction.Parse(http.MethodGet, path, query, nil)
	if err != nil || i.Kind != interaction.TypeSearch || !x.SearchHandler.IsSingleTypeSearch(i) || x.Judge.MayDeny() {
		return false
	}
	return x.Judge.Rights().IsUnrestricted(i.Type, message.ReadSearch) || slices.ContainsFunc(x.Judge.Rights().GrantsFor(i.Type, message.ReadSearch), func(g access.Grant) bool {
		return g.Patient == "" && !g.DependsOnPolicy && len(g.Constraint) > 0 &&
			!slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !slices.Contains(i.Parameters, p) })
	})
}

// requestElements are the elements that may contain requests to execute: Da Vinci HRex puts a search into Task.input, CDex into
// an extension of CommunicationRequest.payload.
var requestElements = []string{"input", "payload"}

// checkTask rejects an executable resource that contains a search, read or operation for which the token has no scope.
//
// Under patient-bound scopes, [writePermission.checkReferences] judges the references as in any resource.
func (x *Handler) checkTask(res resource.Resource) error {
	writeGrants := slices.Concat(x.Judge.Rights().GrantsFor(res.Type, smart.Create), x.Judge.Rights().GrantsFor(res.Type, smart.Update))
	isBound := !slices.ContainsFunc(writeGrants, func(g access.Grant) bool { return g.Patient == "" })
	for _, element := range requestElements {
		for value := range res.Values(resource.Path{Elements: []string{element}}) {
			err := message.VisitStrings(value, func(name, value string) error {
				if name == "reference" && isBound {
					return nil
				}
				return x.checkRequestText(res.Type, value)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRequestText rejects a text that is a request which the token may not send. A path is treated like a URL, and a resource
// in a compartment like any resource of its type.
func (x *Handler) checkRequestText(in, value string) error {
	path, query, hasQuery := strings.Cut(strings.TrimSpace(value), "?")
	of := path[strings.LastIndexByte(path, '/')+1:]
	i, err := interaction.Parse(http.MethodGet, path, "", nil)
	switch {
	case hasQuery && interaction.IsType(of):
		if x.maySearch(of + "?" + query) {
			return nil
		}
	case strings.HasPrefix(of, "$"):
	case err == nil && i.Type != "" && strings.Contains(path, "/"):
		if i.Kind == interaction.Read && x.Judge.Rights().IsUnrestricted(i.Type, smart.Read) {
			return nil
		}
	default:
		return nil
	}
	return message.Forbidden(message.ErrDisclosure, "The %s contains the request %s, which the scopes do not fully allow.", in, message.QuoteJSON(value))
}

// inertBundleTypes are the types of Bundles that no server executes as requests.
var inertBundleTypes = []string{"document", "collection", "searchset", "history", "batch-response", "transaction-response"}

// checkContainer rejects a Bundle that a server may execute as requests or a message, and a Basic that represents R5's
// SubscriptionTopic in R4 (Subscriptions R5 Backport, "Topic Discovery").
func (x *Handler) checkContainer(res resource.Resource, text []byte) error {
	if res.Type == "Bundle" {
		kind, _ := res.Member("type")
		if slices.Contains(inertBundleTypes, resource.Text(kind)) {
			return nil
		}
		return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrDisclosure, "A server may execute a stored Bundle of this type: writing it requires scopes to read and search all resources.")
	}
	return message.VisitStrings(text, func(_, value string) error {
		if strings.Contains(value, "SubscriptionTopic") {
			return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrDisclosure, "A SubscriptionTopic determines which data other clients receive: writing it requires scopes to read and search all resources.")
		}
		return nil
	})
}

var errInvalidChannel = errors.New("the Subscription channel cannot be checked")

// checkSubscription rejects a Subscription, even an inactive one, that would send more than a search with the token finds. The
// stored version does not matter, because the complete new version is judged.
//
// The sent resources are not judged individually, so the scopes must cover every match. Only the topic defines the content of
// its notifications, so topics require scopes for everything.
func (x *Handler) checkSubscription(res resource.Resource, text []byte) error {
	criteria, _ := res.Member("criteria")
	if !x.maySearch(resource.Text(criteria)) {
		return message.Forbidden(message.ErrDisclosure, "The Subscription could send data that the scopes do not cover: its criteria must search a single type "+
			"using only parameters of that type, and a scope must grant the permissions r and s on the entire type. Topics require scopes for all resources.")
	}
	if err := message.VisitStrings(text, checkExtension); err != nil {
		return err
	}
	return checkChannel(res)
}

// backportPrefix is the URL prefix of the extensions of the Subscriptions R5 Backport.
const backportPrefix = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"

// harmlessExtensions are extensions that do not add to the sent content.
var harmlessExtensions = []string{backportPrefix + "heartbeat-period", backportPrefix + "timeout", backportPrefix + "max-count", backportPrefix + "payload-content"}

// checkExtension rejects unknown extensions, because some FHIR servers have extensions that send more than the criteria match.
// In a Subscription, only extensions have a member url.
func checkExtension(name, value string) error {
	if name == "url" && !slices.Contains(harmlessExtensions, value) {
		return message.Forbidden(message.ErrDisclosure, "The extension %s of the Subscription is not allowed with these scopes: it could send more data than the criteria match.", message.QuoteJSON(value))
	}
	return nil
}

// endpointSchemes maps the permitted channel types (R4 valueset-subscription-channel-type.html) to the URL schemes of their
// endpoints. R4's sms and message are excluded, because only the server knows their recipients.
var endpointSchemes = map[string][]string{
	"rest-hook": {"https", "http"},
	"websocket": {"", "wss", "ws"},
	"email":     {"mailto"},
}

// checkChannel rejects a channel unless its recipient and protocol are unambiguous.
func checkChannel(res resource.Resource) error {
	channel, _ := res.Member("channel")
	kind, _ := resource.Field(channel, "type")
	schemes, ok := endpointSchemes[resource.Text(kind)]
	if !ok {
		return message.Forbidden(message.ErrDisclosure, "With these scopes, the channel type of a Subscription must be rest-hook, websocket or email.")
	}
	endpoint, _ := resource.Field(channel, "endpoint")
	u, err := url.Parse(resource.Text(endpoint))
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.User != nil || u.Scheme != "" && u.Host == "" && u.Opaque == "" {
		return message.InvalidRequest(errInvalidChannel, "The endpoint of the Subscription's channel is not a valid URL for its channel type.")
	}
	headers, ok := resource.Field(channel, "header")
	if !ok {
		return nil
	}
	for value := range resource.Elements(headers) {
		match := headerLinePattern.FindStringSubmatch(resource.Text(value))
		if match == nil || framingHeaders[http.CanonicalHeaderKey(match[1])] {
			return message.InvalidRequest(errInvalidChannel, "A header of the Subscription's channel is malformed or not allowed: use \"Name: value\", and no headers that control message framing.")
		}
	}
	return nil
}

// framingHeaders are headers that change the end, the target or the method of a request. If a Subscription contained them, the
// server could send a different request than intended.
var framingHeaders = message.NewSet("Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override")

// headerLinePattern matches a header field on one line (RFC 9110 §5.5).
var headerLinePattern = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")
