package client

import "encoding/json"

// storedClient is what a client that registered itself has said, by the names under which it has always been stored.
type storedClient struct {
	ID, Name, JWKSURI, AssertionAlgorithm, BackchannelLogoutURI string

	JWKS                                                        []byte
	Native, RequirePushed                                       bool
	RedirectURIs, PostLogoutRedirectURIs, ResponseTypes, Scopes []string

	BackchannelSession bool           `json:",omitempty"`
	UserinfoAlgorithm  string         `json:",omitempty"`
	Links              Links          `json:",omitzero"`
	RequestObjects     RequestObjects `json:",omitzero"`
}

// parseRegistered reads a client as stored.
func parseRegistered(value []byte) (*registered, error) {
	c := new(registered)
	if err := json.Unmarshal(value, c); err != nil {
		return nil, err
	}
	s := c.Stored
	c.Client = Client{
		ID: s.ID, Name: s.Name, JWKS: s.JWKS, JWKSURI: s.JWKSURI, AssertionAlgorithm: s.AssertionAlgorithm, BackchannelLogoutURI: s.BackchannelLogoutURI,
		Native: s.Native, RequirePushed: s.RequirePushed, RedirectURIs: s.RedirectURIs, PostLogoutRedirectURIs: s.PostLogoutRedirectURIs,
		ResponseTypes: s.ResponseTypes, Scopes: s.Scopes, BackchannelSession: s.BackchannelSession, UserinfoAlgorithm: s.UserinfoAlgorithm,
		Links: s.Links, RequestObjects: s.RequestObjects,
	}
	return c, nil
}

// text is a client as it is to be stored.
func (c *registered) text() ([]byte, error) {
	s := &c.Client
	c.Stored = storedClient{
		ID: s.ID, Name: s.Name, JWKS: s.JWKS, JWKSURI: s.JWKSURI, AssertionAlgorithm: s.AssertionAlgorithm, BackchannelLogoutURI: s.BackchannelLogoutURI,
		Native: s.Native, RequirePushed: s.RequirePushed, RedirectURIs: s.RedirectURIs, PostLogoutRedirectURIs: s.PostLogoutRedirectURIs,
		ResponseTypes: s.ResponseTypes, Scopes: s.Scopes, BackchannelSession: s.BackchannelSession, UserinfoAlgorithm: s.UserinfoAlgorithm,
		Links: s.Links, RequestObjects: s.RequestObjects,
	}
	return json.Marshal(c)
}
