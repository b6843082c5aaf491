package crossorigin

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Words of a cors option that are no origins.
const (
	corsAll = "*"
	Clients = "clients"
)

var errNoClients = errors.New("cors clients requires the fhir global option, which defines the clients")

// clientOrigins are the origins of the fhir app's clients.
type clientOrigins interface {
	// AllowsOrigin reports whether a client has a redirect URI there.
	AllowsOrigin(origin string) bool
}

// New returns the policy of a cors option; nil if it is empty. The origins of clients are nil without the app.
func New(words []string, of clientOrigins) (*Policy, error) {
	switch {
	case len(words) == 0:
		return nil, nil
	case slices.Contains(words, corsAll):
		return Public, nil
	case of == nil:
		if err := CheckClients(words); err != nil {
			return nil, err
		}
	}
	for _, word := range words {
		if err := Check(word); err != nil {
			return nil, err
		}
	}
	clients := slices.Contains(words, Clients)
	return Restricted(func(origin string) bool {
		return origin != Clients && (slices.Contains(words, origin) || clients && of.AllowsOrigin(origin))
	}), nil
}

// CheckClients refuses the word clients if there is no app to define them.
func CheckClients(words []string) error {
	if slices.Contains(words, Clients) {
		return errNoClients
	}
	return nil
}

// Check checks a word of a cors option. An origin that no browser sends is an error, as it would never match.
func Check(word string) error {
	if word == corsAll || word == Clients {
		return nil
	}
	u, err := url.Parse(word)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Host != strings.ToLower(u.Host) || strings.Contains(u.Host, "*") || word != u.Scheme+"://"+u.Host ||
		u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		return fmt.Errorf("%q is neither %s nor %s nor an origin such as https://app.example.org: in lower case, with nothing after host and port, and without a port that is the usual one", word, Clients, corsAll)
	}
	return nil
}
