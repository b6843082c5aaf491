package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Input holds the variables of rules other than the resource. It must not be changed while the [rule.Judgement] is in use.
type Input struct {
	// Token is who asks.
	Token Token
	// Request is what they ask for.
	Request Request
	// Unread are the names of claims that the person has, but that could not be read: whatever depends on one, fails.
	Unread []string
	// Now is the time at which rules judge.
	Now time.Time
}

// Token is what rules know of the access token. What the token does not say is empty.
type Token struct {
	// Issuer is the iss claim.
	Issuer string `cel:"issuer"`
	// Subject is the sub claim.
	Subject string `cel:"subject"`
	// ClientID is the client_id claim.
	ClientID string `cel:"client_id"`
	// Scopes are the granted scopes.
	Scopes []string `cel:"scopes"`
	// Patient is the id of the patient in context.
	Patient string `cel:"patient"`
	// FHIRUser is the fhirUser claim.
	FHIRUser string `cel:"fhir_user"`
	// IDP is who tells of Groups and Claims: an identity provider, or local.
	IDP string `cel:"idp"`
	// Groups are those that the person is in.
	Groups []string `cel:"groups"`
	// Claims are further claims that the site names. One that is missing has no values.
	Claims map[string][]string `cel:"claims"`
}

// Request is what rules know of a request, or of an entry of a batch. What the request does not say is empty.
type Request struct {
	// Interaction is FHIR's code, such as read or search-type.
	Interaction string `cel:"interaction"`
	// Type is the resource type.
	Type string `cel:"type"`
	// ID is the resource's logical id.
	ID string `cel:"id"`
	// Compartment is where a search in a compartment looks, such as Patient/1.
	Compartment string `cel:"compartment"`
	// Operation is an operation's name, such as $everything.
	Operation string `cel:"operation"`
	// Parameters are those of the query and of the form, by their names with modifiers.
	Parameters map[string][]string `cel:"parameters"`
	// Method is the HTTP method.
	Method string `cel:"method"`
	// ClientIP is the client's address.
	ClientIP string `cel:"client_ip"`
}

// newInput returns the input for a request. Claims that the token lacks have no values: which claims a token has depends on
// its issuer.
func newInput(r rule.Request, claims []string) *Input {
	i := r.Interaction
	in := &Input{Now: time.Now(), Request: Request{
		Interaction: i.Kind.String(), Type: i.Type, ID: i.ID, Operation: i.Operation, Method: r.Method,
		Parameters: map[string][]string{}, ClientIP: requester.Address(r.Client),
	}}
	if i.Kind == interaction.CompartmentSearch {
		in.Request.Compartment = i.Compartment.String()
	}
	for _, p := range i.Parameters {
		in.Request.Parameters[p.Name] = append(in.Request.Parameters[p.Name], p.Value)
	}
	if t := r.Token; t != nil {
		in.Unread = t.Unread
		in.Token = Token{
			Issuer: t.Issuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: strings.Fields(t.Scope), Patient: t.Patient,
			FHIRUser: t.FHIRUser, IDP: t.IDP, Groups: t.Groups, Claims: make(map[string][]string, len(claims)),
		}
		for _, name := range claims {
			in.Token.Claims[name] = t.Claims[name]
		}
	}
	return in
}

// variables are what an expression finds by name.
type variables struct {
	in       *Input
	resource *elements // nil if the request alone is judged
}

// ResolveName implements cel.Activation.
func (v variables) ResolveName(name string) (any, bool) {
	switch name {
	case "token":
		return &v.in.Token, true
	case "request":
		return &v.in.Request, true
	case "now":
		return types.Timestamp{Time: v.in.Now}, true
	case resourceName:
		if v.resource != nil {
			return v.resource.value(), true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (variables) Parent() cel.Activation { return nil }

// resourceName is the variable that holds the resource.
const resourceName = "resource"

// elements are the elements of a resource that rules look at, read when the first rule does.
type elements struct {
	resource resource.Resource
	names    []string
	read     any
}

// value is the resource as expressions see it. One that cannot be read makes all fail that look at it.
func (e *elements) value() any {
	if e.read != nil {
		return e.read
	}
	found := make(map[string]any, len(e.names))
	e.read = found
	for _, name := range e.names {
		text, ok := e.resource.Member(name)
		if !ok {
			continue
		}
		value, err := read(rawjson.NewCursor(text))
		if err != nil {
			e.read = types.WrapErr(fmt.Errorf("element %s: %w", name, err))
			break
		}
		found[name] = value
	}
	return e.read
}

// read reads a JSON value. Numbers without a fraction are integers, as far as they fit.
func read(c *rawjson.Cursor) (any, error) {
	switch c.Kind() {
	case rawjson.Object:
		members := map[string]any{}
		err := c.Object(func(name []byte) (err error) {
			key := string(name)
			members[key], err = read(c)
			return err
		})
		return members, err
	case rawjson.Array:
		list := []any{}
		err := c.Array(func() error {
			element, err := read(c)
			list = append(list, element)
			return err
		})
		return list, err
	case rawjson.String:
		return c.Text()
	case rawjson.Number:
		return readNumber(c)
	case rawjson.Bool:
		text, err := c.Raw()
		return len(text) == len("true"), err
	}
	return nil, c.Skip() // null, or no value
}

func readNumber(c *rawjson.Cursor) (any, error) {
	text, err := c.Raw()
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(string(text), 64)
}
