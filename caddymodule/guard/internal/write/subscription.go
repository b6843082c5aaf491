package write

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

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
		if !isHeader(resource.Text(value)) {
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

// isHeader reports whether a text is a header that the server may send along.
func isHeader(line string) bool {
	match := headerLine.FindStringSubmatch(line)
	return match != nil && !framing[http.CanonicalHeaderKey(match[1])]
}
