package caddymodule

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
)

const adminKeys = "/fhir/keys"

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-rotate-keys",
		Usage: "[--address <interface>] [--config <path> [--adapter <name>]]",
		Short: "Makes new signing keys",
		Long: `
Asks the running gateway, by Caddy's admin API, to make new signing keys. They are
published at once and sign an hour later. The keys that they replace stay published
until nothing that they signed is valid: no token ends, and nobody has to sign in
again. Keys are replaced every 90 days without this command.

--address
    Where the admin API is, if it is not the default or in --config.`,
		Flags: func() *flag.FlagSet {
			flags := flag.NewFlagSet("fhir-rotate-keys", flag.ExitOnError)
			adminFlags(flags)
			return flags
		}(),
		Func: func(flags caddycmd.Flags) (int, error) {
			ask, err := adminRequest(flags, http.MethodPost)
			if err != nil {
				return caddy.ExitCodeFailedStartup, err
			}
			return rotateKeysBy(os.Stdout, ask)
		},
	})
}

// rotatedKeys is the answer to POST /fhir/keys.
type rotatedKeys struct {
	Keys []keyring.Info `json:"keys"` // all, with the new ones
}

func (a *adminAPI) rotateKeys(r *http.Request) (any, error) {
	app, err := fhirapp.Find[*App](a.running())
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	err = app.Keys().Rotate(r.Context())
	if errors.Is(err, keyring.ErrManyKeys) {
		err = caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	}
	return rotatedKeys{app.Keys().Info()}, err
}

// rotateKeysBy rotates the keys, and prints which there are. ask sends a POST to the admin API.
func rotateKeysBy(out io.Writer, ask askAdmin) (int, error) {
	var rotated rotatedKeys
	if err := ask.decode(adminKeys, &rotated, "rotating the keys", "reading which keys there are"); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	for _, key := range rotated.Keys {
		if _, err := fmt.Fprintf(out, "%s %s, %s old\n", key.Algorithm, key.KeyID, time.Duration(key.Seconds)*time.Second); err != nil {
			return caddy.ExitCodeFailedQuit, err
		}
	}
	return caddy.ExitCodeSuccess, nil
}
