package write

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// MayAct reports whether a stored resource of the type could have the FHIR server send or ask more than the token may.
// Who may read and search everything gains nothing by it.
func MayAct(rights *access.Rights, resourceType string) bool {
	return !rights.Whole(smart.AnyType, message.ReadSearch) && access.EffectOf(resourceType) != access.Inert
}

// checkEffect refuses a version that, once stored, would have the FHIR server send or ask what no scope allows, or of
// which that cannot be told.
func (x *Writes) checkEffect(res resource.Resource, text []byte) error {
	if !MayAct(x.Judge.Rights(), res.Type) {
		return nil
	}
	switch access.EffectOf(res.Type) {
	case access.Sends:
		return checkSubscription(res, text, x.maySearch)
	case access.Asks:
		return x.checkTask(res)
	case access.Carries:
		return x.checkCarrier(res, text)
	}
	return message.Beyond(x.Judge.Rights(), message.ErrOracle, "A %s changes what this server finds or does for others: only scopes to read and search everything allow to write one.", res.Type)
}

// maySearch reports whether the token may read all that a search of one type finds, which is not judged again: by the
// type's own parameters, and under a scope about the whole type, or whose constraint is among the criteria word for word.
func (x *Writes) maySearch(criteria string) bool {
	path, query, _ := strings.Cut(criteria, "?")
	i, err := interaction.Parse(http.MethodGet, path, query, nil)
	if err != nil || i.Kind != interaction.TypeSearch || !x.Searches.IsPlain(i) || x.Judge.MayDeny() {
		return false
	}
	return x.Judge.Rights().Whole(i.Type, message.ReadSearch) || slices.ContainsFunc(x.Judge.Rights().For(i.Type, message.ReadSearch), func(g access.Grant) bool {
		return g.Patient == "" && !g.ByRule && len(g.Constraint) > 0 &&
			!slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !slices.Contains(i.Parameters, p) })
	})
}

// questions are the elements of a resource that is carried out which may say what is to be asked: Da Vinci HRex writes a
// search as Task.input, CDex one as an extension of CommunicationRequest.payload.
var questions = []string{"input", "payload"}

// checkTask refuses a search, read or operation for which the token has no scope in what is to be carried out.
//
// Under scopes that are bound to a patient, references are judged as those of any resource: see [write.checkReferences].
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

// checkQuestion refuses a text that is a request which the token may not make. A path is as good as a URL, a resource in
// a compartment as good as any of its type.
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
		if i.Kind == interaction.Read && x.Judge.Rights().Whole(i.Type, smart.Read) {
			return nil
		}
	default:
		return nil
	}
	return message.Forbidden(message.ErrOracle, "The %s asks for %s, which the scopes do not allow in whole.", in, message.Quoted(said))
}

// storedKinds are the types of Bundles that are no request to whoever holds them.
var storedKinds = []string{"document", "collection", "searchset", "history", "batch-response", "transaction-response"}

// checkCarrier refuses a Bundle that a server may take for requests or a message, and a Basic that is R5's
// SubscriptionTopic in R4 (Subscriptions R5 Backport, "Topic Discovery").
func (x *Writes) checkCarrier(res resource.Resource, text []byte) error {
	if res.Type == "Bundle" {
		kind, _ := res.Member("type")
		if slices.Contains(storedKinds, resource.Text(kind)) {
			return nil
		}
		return message.Beyond(x.Judge.Rights(), message.ErrOracle, "A stored Bundle of this type may be carried out: only scopes to read and search everything allow to write one.")
	}
	return message.EachString(text, func(_, said string) error {
		if strings.Contains(said, "SubscriptionTopic") {
			return message.Beyond(x.Judge.Rights(), message.ErrOracle, "A SubscriptionTopic says what is sent to others: only scopes to read and search everything allow to write one.")
		}
		return nil
	})
}

var errChannel = errors.New("channel of a Subscription that cannot be judged")

// checkSubscription refuses a Subscription that would send more than a search by the token finds, whatever its status:
// it may be activated later. Whose it was before counts for nothing, since all of it is judged as it will be.
//
// What is sent is not judged one by one, so what a search finds must be covered as a whole. What a topic sends, the topic
// says, and no filter: it takes scopes for everything.
func checkSubscription(res resource.Resource, text []byte, maySearch func(criteria string) bool) error {
	criteria, _ := res.Member("criteria")
	if !maySearch(resource.Text(criteria)) {
		return message.Forbidden(message.ErrOracle, "The Subscription would send what the scopes do not allow to read: its criteria must be a search of one type, "+
			"by that type's own parameters, which a scope with the permissions r and s allows in whole. Topics take scopes for everything.")
	}
	if err := message.EachString(text, checkExtension); err != nil {
		return err
	}
	return checkChannel(res)
}

// backport is where the extensions of the Subscriptions R5 Backport are.
const backport = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"

// harmless are the extensions that do not add to what is sent.
var harmless = []string{backport + "heartbeat-period", backport + "timeout", backport + "max-count", backport + "payload-content"}

// checkExtension refuses extensions: FHIR servers have some by which more is sent than the criteria say. Nothing but an
// extension has a member url in a Subscription.
func checkExtension(name, said string) error {
	if name == "url" && !slices.Contains(harmless, said) {
		return message.Forbidden(message.ErrOracle, "The extension %s of the Subscription is not allowed under these scopes: it may send more than the criteria say.", message.Quoted(said))
	}
	return nil
}

// channels are the ways of sending (R4 valueset-subscription-channel-type.html), with the schemes of their endpoints.
// R4's sms and message are the server's own ways, of which it is not known where they lead.
var channels = map[string][]string{
	"rest-hook": {"https", "http"},
	"websocket": {"", "wss", "ws"},
	"email":     {"mailto"},
}

// checkChannel refuses a channel of which it is not plain where and how it sends.
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
		return invalidChannel("The endpoint of the Subscription's channel is no URL for its type.")
	}
	headers, ok := resource.Field(channel, "header")
	if !ok {
		return nil
	}
	for value := range resource.Elements(headers) {
		match := headerLine.FindStringSubmatch(resource.Text(value))
		if match == nil || framing[http.CanonicalHeaderKey(match[1])] {
			return invalidChannel("A header of the Subscription's channel is no \"Name: value\", or one that says how the request is read.")
		}
	}
	return nil
}

func invalidChannel(text string) *guard.Error { return message.Invalid(errChannel, "%s", text) }

// framing are headers that say where a request ends, whom it is for, or what it asks: with them a Subscription would send
// another request than the one that the server means to send.
var framing = message.SetOf("Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override")

// headerLine is a header on one line (RFC 9110 §5.5).
var headerLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")
