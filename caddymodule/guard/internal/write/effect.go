package write

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// MayAct reports whether a stored resource of the type could have the FHIR server send or ask more than the token may.
// Who may read and search everything gains nothing by it.
func MayAct(rights *access.Rights, resourceType string) bool {
	return rights.All()&message.ReadSearch != message.ReadSearch && access.EffectOf(resourceType) != access.Inert
}

// effects judge what a stored resource would have the FHIR server do.
type effects struct {
	rights  *access.Rights
	mayDeny bool // the site's rules must be asked about each resource
	isPlain func(i interaction.Interaction) bool
}

func (x *Writes) effects() effects {
	return effects{x.Judge.Rights(), x.Judge.MayDeny(), x.Searches.IsPlain}
}

// check refuses a version that, once stored, would have the FHIR server send or ask what no scope allows, or of
// which that cannot be told.
func (x effects) check(res resource.Resource, text []byte) error {
	if !MayAct(x.rights, res.Type) {
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
	return message.Beyond(x.rights, message.ErrOracle, "A %s changes what this server finds or does for others: only scopes to read and search everything allow to write one.", res.Type)
}

// maySearch reports whether the token may read all that a search of one type finds, which is not judged again: by the
// type's own parameters, and under a scope about the whole type, or whose constraint is among the criteria word for word.
func (x effects) maySearch(criteria string) bool {
	path, query, _ := strings.Cut(criteria, "?")
	i, err := interaction.Parse(http.MethodGet, path, query, nil)
	if err != nil || i.Kind != interaction.TypeSearch || !x.isPlain(i) || x.mayDeny {
		return false
	}
	return x.rights.Whole(i.Type, message.ReadSearch) || slices.ContainsFunc(x.rights.For(i.Type, message.ReadSearch), func(g access.Grant) bool {
		return g.Patient == "" && !g.ByRule && len(g.Constraint) > 0 && containsAll(i.Parameters, g.Constraint)
	})
}

func containsAll(list, some []smart.Parameter) bool {
	return !slices.ContainsFunc(some, func(p smart.Parameter) bool { return !slices.Contains(list, p) })
}

// questions are the elements of a resource that is carried out which may say what is to be asked: Da Vinci HRex writes a
// search as Task.input, CDex one as an extension of CommunicationRequest.payload.
var questions = []string{"input", "payload"}

// checkTask refuses a search, read or operation for which the token has no scope in what is to be carried out.
//
// Under scopes that are bound to a patient, references are judged as those of any resource: see [write.checkReferences].
func (x effects) checkTask(res resource.Resource) error {
	writing := slices.Concat(x.rights.For(res.Type, smart.Create), x.rights.For(res.Type, smart.Update))
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
func (x effects) checkQuestion(in, said string) error {
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
		if i.Kind == interaction.Read && x.rights.Whole(i.Type, smart.Read) {
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
func (x effects) checkCarrier(res resource.Resource, text []byte) error {
	if res.Type == "Bundle" {
		kind, _ := res.Member("type")
		if slices.Contains(storedKinds, resource.Text(kind)) {
			return nil
		}
		return message.Beyond(x.rights, message.ErrOracle, "A stored Bundle of this type may be carried out: only scopes to read and search everything allow to write one.")
	}
	return message.EachString(text, func(_, said string) error {
		if strings.Contains(said, "SubscriptionTopic") {
			return message.Beyond(x.rights, message.ErrOracle, "A SubscriptionTopic says what is sent to others: only scopes to read and search everything allow to write one.")
		}
		return nil
	})
}
