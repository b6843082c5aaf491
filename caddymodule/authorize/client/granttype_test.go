package client

import "testing"

// An empty grant type is available to no client and listed nowhere.
func TestEmptyGrantType(t *testing.T) {
	t.Parallel()
	grants := GrantTypes{{Name: "new"}}
	c := &Client{ID: "app", Secret: "x", ResponseTypes: ResponseTypes, RedirectURIs: []string{"https://app.example/"}, GrantTypes: []string{"new"}}
	if err := c.Complete(grants); err == nil {
		t.Error("a client may list it")
	}
	if grants[0].isUsableBy(c) || len(grants.TokenEndpointNames())+len(grants.ConfigurableNames())+len(grants.RegistrableNames()) > 0 {
		t.Error("it is listed")
	}
}
