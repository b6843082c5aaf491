package client

import "testing"

// The zero GrantType is not usable by any client and not listed anywhere.
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
