package relyingparty

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// maxGroups is the maximum number of groups of one person, which are read for each request of an app.
const maxGroups = 2000

// addGroups adds the groups of a person with more than 200 groups. Entra ID omits them from the ID token and refers to
// Microsoft Graph, which also returns nested groups. If the request fails, the sign-in fails, because rules must not be applied
// to an incomplete list.
func (p *Provider) addGroups(ctx context.Context, identity *Identity, accessToken string) error {
	const name = tokenclaim.DefaultGroupsClaim
	if _, complete := tokenclaim.Read(identity.Claims, name); complete || p.config.GraphURL == "" {
		return nil
	}
	groups, err := p.fetchGroups(ctx, accessToken)
	if err != nil {
		return err
	}
	values := make([]any, len(groups))
	for i, group := range groups {
		values[i] = group
	}
	identity.Claims[name] = values
	return nil
}

// fetchGroups returns the ids of the security groups and directory roles of the access token's person.
func (p *Provider) fetchGroups(ctx context.Context, accessToken string) ([]string, error) {
	address := strings.TrimSuffix(p.config.GraphURL, "/") + "/v1.0/me/getMemberObjects"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"securityEnabledOnly":true}`))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", groupsEndpoint, err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + accessToken}, "Content-Type": {"application/json"}, "Accept": {"application/json"}}
	body, _, err := p.client.do(groupsEndpoint, r)
	switch {
	case errors.Is(err, ErrStatus):
		return nil, fmt.Errorf("%w: %w", ErrGroups, err)
	case err != nil:
		return nil, err
	}
	var response struct {
		Value []string `json:"value"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGroups, err)
	}
	if response.Value == nil || len(response.Value) > maxGroups {
		return nil, fmt.Errorf("%w: %d groups, expected at most %d", ErrGroups, len(response.Value), maxGroups)
	}
	return response.Value, nil
}
