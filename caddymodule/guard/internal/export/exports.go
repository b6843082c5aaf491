package export

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// asker asks the FHIR server.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Pass(ctx context.Context, c message.Call, accept []string, w http.ResponseWriter) error
}

// judge says what the token may export.
type judge interface {
	Rights() *access.Rights
	MayDeny() bool
	Ruled(ctx context.Context, res resource.Resource) policy.Effect
	Under(ctx context.Context, c message.Call, i interaction.Interaction, answer func() (*message.Answer, error)) (*message.Answer, error)
}

// Exports are the exports that one request needs.
type Exports struct {
	Server     asker             // asks the FHIR server
	Judge      judge             // judges what it answers
	At         message.Addresses // names what it holds as clients know it
	Sealing    paging.Sealing    // seals links to the job and its files
	Binding    string            // of links to the token
	R          *http.Request     // the client's
	Parameters searchparam.Set   // are the search parameters
	Limit      int64             // of a line
}

// systemScopes are the scopes to export types; without one, all.
func systemScopes(types ...string) string {
	if len(types) == 0 {
		types = []string{smart.AnyType}
	}
	scopes := make([]string, len(types))
	for n, t := range types {
		scopes[n] = smart.ResourceScope{Level: "system", Type: t, Permission: message.ReadSearch}.String()
	}
	return strings.Join(scopes, " ")
}

// below is a link of the FHIR server as path and query below its base.
func below(base, link string) (path, query string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", "", message.Withheld(err)
	}
	rest, ok := strings.CutPrefix(u.Path, base+"/")
	if !ok || rest == "" {
		return "", "", message.Withheld(paging.ErrForeignLink)
	}
	return rest, u.RawQuery, nil
}
