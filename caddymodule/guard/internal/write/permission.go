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

// CheckNew rejects a resource that none of the grants allows to create.
func (x *Writes) CheckNew(ctx context.Context, res resource.Resource, text []byte, grants []access.Grant) error {
	if err := checkConditional(x.Judge.Rights(), text); err != nil {
		return err
	}
	may := permission{x.Judge, x.Shared, res.Type, grants}
	_, err := may.permit(ctx, nil, &version{Resource: res, text: text})
	return err
}

// permit returns the first grant that allows changing one version to the other; an error if none does. before is nil for a
// create, after for a delete.
func (w permission) permit(ctx context.Context, before, after *version) (g access.Grant, err error) {
	for _, g = range w.grants {
		if err = w.allows(ctx, g, before, after); !errors.Is(err, message.ErrOutside) {
			break
		}
	}
	return g, err
}

// allows returns an error if a grant does not allow the change.
func (w permission) allows(ctx context.Context, g access.Grant, before, after *version) error {
	for _, v := range []*version{before, after} {
		if v == nil {
			continue
		}
		if ok, err := w.covers(ctx, g, v); err != nil || !ok {
			return cmp.Or(err, error(outside(w.resourceType)))
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

// checkCovered rejects a version that no grant covers, regardless of the stored version.
func (w permission) checkCovered(ctx context.Context, after *version) error {
	for _, g := range w.grants {
		if ok, err := w.covers(ctx, g, after); ok || err != nil {
			return err
		}
	}
	return outside(w.resourceType)
}

// covers reports whether a grant covers a written version, unless a policy decides.
func (w permission) covers(ctx context.Context, g access.Grant, v *version) (bool, error) {
	if effect := w.judge.PolicyEffect(ctx, v.Resource); effect != "" {
		return effect == rule.Allow, nil
	}
	return w.judge.CheckVerdict(ctx, g, w.judge.Rights().CoversNew(g, v.Resource))
}

// outside returns the error for a version that no grant covers.
func outside(resourceType string) *guard.Error {
	return message.Forbidden(message.ErrOutside, "No scope allows to write this %s: before and after, it must match the constraint of one and the same scope, "+
		"and name the patient of that scope and no other.", resourceType)
}

// checkReferences rejects new references that would tie a record to an uncovered resource. A missing target gets the same
// rejection, because the FHIR server's own error would reveal whether the target exists.
func (w permission) checkReferences(ctx context.Context, g access.Grant, before, after *version) error {
	var old []string
	if before != nil {
		old, _ = message.References(before.text) // parsed before, so never fails
	}
	added, err := message.References(after.text)
	if err != nil {
		return message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	for _, literal := range added {
		if slices.Contains(old, literal) {
			continue
		}
		if ok, err := w.mayRefer(ctx, g, after.Resource, literal); err != nil || !ok {
			return cmp.Or(err, error(message.Forbidden(message.ErrOutside, "The resource refers to another one that is not there, or that the access token does not cover.")))
		}
	}
	return nil
}

var errAttachment = errors.New("attachment whose address cannot be judged")

// checkAttachments rejects a DocumentReference with a Binary that the client may not read: read access to a DocumentReference
// includes its Binaries, so the reference would grant access. For a grant without a patient, this applies to the patients whose
// Binaries the client may read by other grants.
func (w permission) checkAttachments(ctx context.Context, g access.Grant, before, after *version) error {
	if after.Type != "DocumentReference" {
		return nil
	}
	if g.Patient != "" {
		return w.checkAttached(ctx, g.Patient, before, after)
	}
	for _, patient := range w.judge.Rights().Opening(after.Type) {
		if !access.NamesOnly(after.Resource, patient) {
			continue
		}
		if err := w.checkAttached(ctx, patient, before, after); err != nil {
			return err
		}
	}
	return nil
}

// checkAttached is checkAttachments for the record of a patient. Binaries that the record already names are readable already.
// Any address that ends like a Binary's counts as one of this server, which may have further names. A urn is resolved within
// the transaction, and all entries of the transaction are judged.
func (w permission) checkAttached(ctx context.Context, patient string, before, after *version) error {
	var old []string
	if before != nil && access.NamesOnly(before.Resource, patient) {
		old = access.Attachments(before.Resource)
	}
	for _, address := range access.Attachments(after.Resource) {
		if slices.Contains(old, address) || !namesBinary(address) {
			continue
		}
		match := message.ResourceURL.FindStringSubmatch(address)
		if match == nil {
			return message.Forbidden(errAttachment, "An attachment names a Binary in a way that cannot be checked: use Binary/id.")
		}
		resourceType, id, _ := strings.Cut(message.WithoutVersion(match[1]), "/")
		ok, err := w.judge.MayAttach(ctx, patient, interaction.Reference{Type: resourceType, ID: id})
		if err != nil || !ok || resourceType != "Binary" {
			return cmp.Or(err, error(message.Forbidden(message.ErrOutside, "An attachment names a Binary that is not there, or that the access token does not cover.")))
		}
	}
	return nil
}

// namesBinary reports whether a server might interpret an address as a Binary's.
func namesBinary(address string) bool {
	if plain, err := url.PathUnescape(address); err == nil {
		address += " " + plain
	}
	visible := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, address)
	return strings.Contains(strings.ToLower(visible), "binary/")
}

// mayRefer reports whether a resource may refer to another, under a grant that is bound to a patient or with policies that may
// deny the target.
func (w permission) mayRefer(ctx context.Context, g access.Grant, from resource.Resource, literal string) (bool, error) {
	if strings.HasPrefix(literal, "#") || strings.HasPrefix(literal, "urn:") {
		return true, nil
	}
	to, ok := from.ParseReference(literal)
	switch {
	case !ok:
		return false, nil
	case w.shared.MayBeReferenced(to.Type) && !w.judge.MayDeny():
		return true, nil
	case to.Base != "": // perhaps another name of the server's own
		return false, nil
	case to.Type == "Patient" && g.Patient != "":
		return to.ID == g.Patient, nil
	}
	return w.judge.IsInRecord(ctx, g, interaction.Reference{Type: to.Type, ID: to.ID})
}

// checkConditional rejects references that are searches (R4 http.html#trules) unless the client may search the whole type. Some
// servers resolve them outside of transactions too.
func checkConditional(rights *access.Rights, text []byte) error {
	all, err := message.References(text)
	if err != nil {
		return message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	for _, literal := range all {
		if err := checkSearching(rights, literal); err != nil {
			return err
		}
	}
	return nil
}

// maxSearching is the maximum number of conditional references in a body.
const maxSearching = 16

// resolveReferences replaces conditional references with the resources that the client's own searches find. References that no
// scope allows remain, and are rejected later. A forwarded write keeps all of them for the FHIR server.
func (w *write) resolveReferences(ctx context.Context) error {
	if w.isForwarded() {
		return nil
	}
	all, _ := message.References(w.c.Body) // a malformed body is rejected later
	slices.Sort(all)
	searching := slices.DeleteFunc(slices.Compact(all), func(literal string) bool {
		of, _, searches := strings.Cut(literal, "?")
		return !searches || !interaction.IsType(of) || len(w.in.Judge.Rights().For(of, smart.Search)) == 0
	})
	if len(searching) > maxSearching {
		return message.TooCostly("At most %d references of a resource may be searches under these scopes.", maxSearching)
	}
	for _, literal := range searching {
		found, err := w.in.searched(ctx, literal)
		if err != nil {
			return err
		}
		w.c.Body = bytes.ReplaceAll(w.c.Body, []byte(message.Quoted(literal)), []byte(message.Quoted(found)))
	}
	return nil
}

// searched returns the single resource that a conditional reference selects (R4 http.html#trules).
func (x *Writes) searched(ctx context.Context, literal string) (string, error) {
	of, criteria, _ := strings.Cut(literal, "?")
	parameters, err := smart.ParseParameters(criteria)
	if err != nil {
		return "", message.Invalid(err, "A conditional reference can be read in several ways.")
	}
	found, err := x.Searches.Selecting(ctx, of, parameters)
	if err != nil {
		return "", err
	}
	id, err := found.One(ctx)
	if err == nil && id == "" {
		err = &guard.Error{
			Status: http.StatusPreconditionFailed, Err: message.ErrOutside,
			Description: "A conditional reference to " + of + " matches nothing that the access token covers.",
		}
	}
	return of + "/" + id, err
}

// checkSearching rejects a conditional reference.
func checkSearching(rights *access.Rights, literal string) error {
	path, criteria, searches := strings.Cut(literal, "?")
	if !searches || rights.IsUnrestricted(smart.AnyType, smart.Search) {
		return nil
	}
	of := path[strings.LastIndexByte(path, '/')+1:]
	if !interaction.IsType(of) {
		return message.Forbidden(message.ErrOracle, "A reference with a question mark is a search: no scope allows it on all types.")
	}
	if list, err := smart.ParseParameters(criteria); err != nil || !rights.IsUnrestricted(of, smart.Search) || reachesOther(list) {
		return message.Forbidden(message.ErrOracle, "A conditional reference to %s is a search: no scope allows it on all resources that it may tell of.", of)
	}
	return nil
}

// reachesOther reports whether a search involves resources other than its matches.
func reachesOther(list []smart.Parameter) bool {
	for _, p := range list {
		switch name, _, _ := strings.Cut(p.Name, ":"); {
		case name == "_has", name == "_filter", name == "_list", name == "_query", strings.Contains(p.Name, "."):
			return true
		}
	}
	return false
}

// MayAct reports whether a stored resource of the type could make the FHIR server send or request more than the token may. A
// token that may read and search everything gains nothing.
func MayAct(rights *access.Rights, resourceType string) bool {
	return !rights.IsUnrestricted(smart.AnyType, message.ReadSearch) && access.SideEffectOf(resourceType) != access.Inert
}

// checkEffect rejects a version that could make the FHIR server send or request something that no scope allows.
func (x *Writes) checkEffect(res resource.Resource, text []byte) error {
	if !MayAct(x.Judge.Rights(), res.Type) {
		return nil
	}
	switch access.SideEffectOf(res.Type) {
	case access.Sends:
		return x.checkSubscription(res, text)
	case access.Asks:
		return x.checkTask(res)
	case access.Carries:
		return x.checkCarrier(res, text)
	}
	return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrOracle, "A %s changes what this server finds or does for others: only scopes to read and search everything allow to write one.", res.Type)
}

// maySearch reports whether the token may read all matches of a search, which are not judged later. The search must use the
// type's own parameters, and a scope must cover the whole type or have its constraint literally among the criteria.
func (x *Writes) maySearch(criteria string) bool {
	path, query, _ := strings.Cut(criteria, "?")
	i, err := interaction.Parse(http.MethodGet, path, query, nil)
	if err != nil || i.Kind != interaction.TypeSearch || !x.Searches.IsPlain(i) || x.Judge.MayDeny() {
		return false
	}
	return x.Judge.Rights().IsUnrestricted(i.Type, message.ReadSearch) || slices.ContainsFunc(x.Judge.Rights().For(i.Type, message.ReadSearch), func(g access.Grant) bool {
		return g.Patient == "" && !g.ByRule && len(g.Constraint) > 0 &&
			!slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !slices.Contains(i.Parameters, p) })
	})
}

// questions are the elements that may contain requests to execute: Da Vinci HRex puts a search into Task.input, CDex into an
// extension of CommunicationRequest.payload.
var questions = []string{"input", "payload"}

// checkTask rejects an executable resource with a search, read or operation that the token has no scope for.
//
// Under scopes that are bound to a patient, [permission.checkReferences] judges the references as in any resource.
func (x *Writes) checkTask(res resource.Resource) error {
	writing := slices.Concat(x.Judge.Rights().For(res.Type, smart.Create), x.Judge.Rights().For(res.Type, smart.Update))
	isBound := !slices.ContainsFunc(writing, func(g access.Grant) bool { return g.Patient == "" })
	for _, element := range questions {
		for value := range res.Values(resource.Path{Elements: []string{element}}) {
			err := message.EachString(value, func(name, said string) error {
				if name == "reference" && isBound {
					return nil
				}
				return x.checkQuestion(res.Type, said)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkQuestion rejects a text that is a request which the token may not send. A path counts like a URL, and a resource in a
// compartment like any of its type.
func (x *Writes) checkQuestion(in, said string) error {
	path, query, searches := strings.Cut(strings.TrimSpace(said), "?")
	of := path[strings.LastIndexByte(path, '/')+1:]
	i, err := interaction.Parse(http.MethodGet, path, "", nil)
	switch {
	case searches && interaction.IsType(of):
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
	return message.Forbidden(message.ErrOracle, "The %s asks for %s, which the scopes do not allow in whole.", in, message.Quoted(said))
}

// storedKinds are the types of Bundles that no server executes as requests.
var storedKinds = []string{"document", "collection", "searchset", "history", "batch-response", "transaction-response"}

// checkCarrier rejects a Bundle that a server may execute as requests or a message, and a Basic that stands for R5's
// SubscriptionTopic in R4 (Subscriptions R5 Backport, "Topic Discovery").
func (x *Writes) checkCarrier(res resource.Resource, text []byte) error {
	if res.Type == "Bundle" {
		kind, _ := res.Member("type")
		if slices.Contains(storedKinds, resource.Text(kind)) {
			return nil
		}
		return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrOracle, "A stored Bundle of this type may be carried out: only scopes to read and search everything allow to write one.")
	}
	return message.EachString(text, func(_, said string) error {
		if strings.Contains(said, "SubscriptionTopic") {
			return message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrOracle, "A SubscriptionTopic says what is sent to others: only scopes to read and search everything allow to write one.")
		}
		return nil
	})
}

var errChannel = errors.New("channel of a Subscription that cannot be judged")

// checkSubscription rejects a Subscription that would send more than a search by the token finds, even if it is not active yet.
// The stored version does not matter, because the new one is judged as a whole.
//
// The sent resources are not judged individually, so the scopes must cover every match. The content of a topic is defined by
// the topic alone, so topics require scopes for everything.
func (x *Writes) checkSubscription(res resource.Resource, text []byte) error {
	criteria, _ := res.Member("criteria")
	if !x.maySearch(resource.Text(criteria)) {
		return message.Forbidden(message.ErrOracle, "The Subscription would send what the scopes do not allow to read: its criteria must be a search of one type, "+
			"by that type's own parameters, which a scope with the permissions r and s allows in whole. Topics take scopes for everything.")
	}
	if err := message.EachString(text, checkExtension); err != nil {
		return err
	}
	return checkChannel(res)
}

// backport is the prefix of the extensions of the Subscriptions R5 Backport.
const backport = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"

// harmless are the extensions that do not extend the sent content.
var harmless = []string{backport + "heartbeat-period", backport + "timeout", backport + "max-count", backport + "payload-content"}

// checkExtension rejects unknown extensions: some FHIR servers have extensions that send more than the criteria match. In a
// Subscription, only extensions have a member url.
func checkExtension(name, said string) error {
	if name == "url" && !slices.Contains(harmless, said) {
		return message.Forbidden(message.ErrOracle, "The extension %s of the Subscription is not allowed under these scopes: it may send more than the criteria say.", message.Quoted(said))
	}
	return nil
}

// channels are the permitted channel types (R4 valueset-subscription-channel-type.html) with the schemes of their endpoints.
// R4's sms and message are excluded, because their recipients are known only to the server.
var channels = map[string][]string{
	"rest-hook": {"https", "http"},
	"websocket": {"", "wss", "ws"},
	"email":     {"mailto"},
}

// checkChannel rejects a channel unless its recipient and protocol are unambiguous.
func checkChannel(res resource.Resource) error {
	channel, _ := res.Member("channel")
	kind, _ := resource.Field(channel, "type")
	schemes, ok := channels[resource.Text(kind)]
	if !ok {
		return message.Forbidden(message.ErrOracle, "A Subscription sends by rest-hook, websocket or email under these scopes.")
	}
	endpoint, _ := resource.Field(channel, "endpoint")
	u, err := url.Parse(resource.Text(endpoint))
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.User != nil || u.Scheme != "" && u.Host == "" && u.Opaque == "" {
		return message.Invalid(errChannel, "The endpoint of the Subscription's channel is no URL for its type.")
	}
	headers, ok := resource.Field(channel, "header")
	if !ok {
		return nil
	}
	for value := range resource.Elements(headers) {
		match := headerLine.FindStringSubmatch(resource.Text(value))
		if match == nil || framing[http.CanonicalHeaderKey(match[1])] {
			return message.Invalid(errChannel, "A header of the Subscription's channel is no \"Name: value\", or one that says how the request is read.")
		}
	}
	return nil
}

// framing are headers that change the end, the target or the method of a request: a Subscription with them could make the
// server send another request than it intends.
var framing = message.SetOf("Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override")

// headerLine matches a header field on one line (RFC 9110 §5.5).
var headerLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")
