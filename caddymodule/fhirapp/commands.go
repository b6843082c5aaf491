package fhirapp

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-check",
		Usage: "<config> [--adapter <name>] [--json]",
		Short: "Checks a configuration and the servers that it uses",
		Long: `
Loads a configuration without serving it, and checks the durable store, the identity
providers, the FHIR server and the terminology servers that it uses. It prints one line
for each, with a hint for each failure. The exit status is 1 if a check failed. A gateway
that runs with the same configuration is not affected.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Args = cobra.ExactArgs(1)
			cmd.Flags().String("adapter", "", "config adapter of the configuration file")
			cmd.Flags().Bool("json", false, "print the results as JSON")
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				cmd.SilenceUsage = true
				adapter, _ := cmd.Flags().GetString("adapter")
				asJSON, _ := cmd.Flags().GetBool("json")
				return checkCommand(cmd.Context(), os.Stdout, args[0], adapter, asJSON)
			}
		},
	})
}

// A check tests one aspect of a configuration.
type check struct {
	Subject string `json:"what"`
	Failure string `json:"fail,omitempty"` // why the check failed; "" if it passed
	Hint    string `json:"mend,omitempty"` // how to fix the failure

	server *string // address of the server that run contacted; nil if it is not reported
	run    func(context.Context) error
}

const (
	checkTimeout    = 10 * time.Second       // timeout of each check
	fileLockTimeout = 500 * time.Millisecond // timeout for the lock of a store file, which a running gateway may have locked
)

var errChecksFailed = errors.New("configuration checks failed")

func checkCommand(ctx context.Context, out io.Writer, path, adapter string, asJSON bool) error {
	checks := newChecks(path, adapter)
	passed := true
	for i := range checks {
		c := &checks[i]
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		if err := c.run(ctx); err != nil {
			passed, c.Failure = false, err.Error()
		} else {
			c.Hint = ""
		}
		if c.server != nil && *c.server != "" {
			c.Subject += " " + *c.server
		}
		cancel()
	}
	if err := printChecks(out, checks, asJSON); err != nil || passed {
		return err
	}
	return errChecksFailed
}

func printChecks(out io.Writer, checks []check, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(checks)
	}
	for _, c := range checks {
		line := "ok    " + c.Subject
		if c.Failure != "" {
			line = fmt.Sprintf("FAIL  %s: %s\n      %s", c.Subject, c.Failure, c.Hint)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// newChecks returns the checks for a configuration. If the configuration cannot be loaded, the only check reports this failure.
func newChecks(path, adapter string) []check {
	ctx, text, err := provisionForCheck(path, adapter)
	checks := []check{{
		Subject: "configuration", Hint: "mend " + path + " as the message describes; run caddy adapt to see the JSON",
		run: func(context.Context) error { return err },
	}}
	if err != nil {
		return checks
	}
	if app, _ := fhirbase.FindAppOrNil[*App](ctx); app != nil {
		checks = append(checks, newStoreCheck(app, path, adapter))
		checks = append(checks, newProviderChecks(app)...)
		checks = append(checks, newBackendCheck(ctx, app))
	}
	return append(checks, newTerminologyChecks(text)...)
}

// provisionForCheck provisions a configuration without starting it.
func provisionForCheck(path, adapter string) (caddy.Context, []byte, error) {
	if strings.HasSuffix(path, ".json") {
		adapter = ""
	}
	text, _, _, err := caddycmd.LoadConfig(path, adapter)
	if err != nil {
		return caddy.Context{}, nil, err
	}
	config := new(caddy.Config)
	if err := json.Unmarshal(text, config); err != nil {
		return caddy.Context{}, nil, err
	}
	ctx, err := caddy.ProvisionContext(config)
	return ctx, text, err
}

// newStoreCheck checks the durable store. It does not create a store file: a file of the user who runs the check, often root,
// would lock the service out.
func newStoreCheck(app *App, path, adapter string) check {
	return check{
		Subject: "durable store",
		Hint:    "start the store, and check its address, user and password in the option store; docs/operate/troubleshooting.md explains each cause",
		run: func(ctx context.Context) error {
			if file, ok := app.Stores().Durable.(stores.FileStore); ok {
				err := file.Check(fileLockTimeout)
				if errors.Is(err, boltstore.ErrInUse) { // a running gateway has locked the file
					return nil
				}
				return err
			}
			opened, err := StoreOpener{adapter, fileLockTimeout}.Open(ctx, path, false)
			if err != nil {
				return err
			}
			defer opened.Close()
			return store.Probe(ctx, opened)
		},
	}
}

func newProviderChecks(app *App) (checks []check) {
	for _, idp := range app.IdentityProviders {
		checks = append(checks, check{
			Subject: fmt.Sprintf("idp %s (%s)", idp.Key, idp.Issuer),
			Hint:    "open " + strings.TrimSuffix(idp.Issuer, "/") + "/.well-known/openid-configuration from this machine: its issuer must match exactly, and its grant_types_supported must contain refresh_token unless revalidate is off. If the provider's certificate is from an internal certificate authority, set tls_ca",
			run:     func(ctx context.Context) error { return app.Server().CheckProvider(ctx, idp.Key) },
		})
	}
	return checks
}

// newBackendCheck requests the FHIR server's CapabilityStatement through the site's routes, as a client would.
func newBackendCheck(ctx caddy.Context, app *App) check {
	server := new(string)
	return check{
		Subject: "FHIR server", server: server,
		Hint: "check the address in fhir_gateway or reverse_proxy, and that the server's base path matches fhir_base, or the path after rewrite",
		run: func(checkCtx context.Context) error {
			checkCtx = httptrace.WithClientTrace(checkCtx, &httptrace.ClientTrace{GetConn: func(hostPort string) { *server = hostPort }})
			loaded, err := ctx.App("http")
			if err != nil {
				return err
			}
			for _, server := range loaded.(*caddyhttp.App).Servers {
				r, err := (&inProcessRecords{app.Issuer, app.FHIRBase}).NewRequest(checkCtx, "metadata", nil)
				if err != nil {
					return err
				}
				w := httptest.NewRecorder()
				if server.ServeHTTP(w, r); w.Code != http.StatusOK || w.Body.Len() > 0 { // a server that doesn't have this site returns an empty 200 response
					return checkCapabilities(w)
				}
			}
			return errors.New("no site in the configuration serves the issuer's address")
		},
	}
}

// checkCapabilities returns an error if a response is not a CapabilityStatement of FHIR R4.
func checkCapabilities(w *httptest.ResponseRecorder) error {
	var statement struct {
		ResourceType string `json:"resourceType"`
		FHIRVersion  string `json:"fhirVersion"`
	}
	switch err := json.Unmarshal(w.Body.Bytes(), &statement); {
	case w.Code != http.StatusOK:
		return fmt.Errorf("GET metadata: status %d", w.Code)
	case err != nil || statement.ResourceType != "CapabilityStatement":
		return errors.New("GET metadata: the response is not a CapabilityStatement")
	case !strings.HasPrefix(statement.FHIRVersion, "4.0"):
		return fmt.Errorf("GET metadata: FHIR version %s is not supported; use 4.0.1", statement.FHIRVersion)
	}
	return nil
}

// newTerminologyChecks returns checks for the terminology servers of all fhir_expand handlers in a configuration.
func newTerminologyChecks(config []byte) (checks []check) {
	var root any
	if json.Unmarshal(config, &root) != nil {
		return nil
	}
	for _, u := range findUpstreams(root) {
		checks = append(checks, check{
			Subject: "terminology server " + u.URL, Hint: "check its address, credentials and certificates in upstream",
			run: func(ctx context.Context) error {
				server, _, err := u.Server(new(expand.Caching))
				if err != nil {
					return err
				}
				return server.Metadata(ctx)
			},
		})
	}
	return checks
}

// findUpstreams returns the terminology servers in a part of a configuration.
func findUpstreams(part any) (found []expand.Upstream) {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			found = append(found, findUpstreams(p)...)
		}
	case map[string]any:
		if part["handler"] == "fhir_expand" {
			return handlerUpstreams(part)
		}
		for _, p := range part {
			found = append(found, findUpstreams(p)...)
		}
	}
	return found
}

func handlerUpstreams(handler any) (found []expand.Upstream) {
	var fields struct {
		Upstream *expand.Upstream       `json:"upstream"`
		Routes   []expand.UpstreamRoute `json:"routes"`
	}
	if text, err := json.Marshal(handler); err != nil || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	if fields.Upstream != nil {
		found = append(found, *fields.Upstream)
	}
	for _, route := range fields.Routes {
		found = append(found, route.Upstream)
	}
	return found
}

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-totp",
		Usage: "--user <name> [--issuer-name <words>]",
		Short: "Creates the secret of an authenticator app for a user",
		Long: `
Makes a new key for the second factor of a user (TOTP, RFC 6238), and prints it
as what an authenticator app takes, and as the line for the Caddyfile. Nothing
is stored. The key is a secret: give it to its owner only.

--user
    The name of the user, as in the Caddyfile.

--issuer-name
    What the app shows next to the code. Default: FHIR`,
		Flags: totpFlags(),
		Func: func(flags caddycmd.Flags) (int, error) {
			return enrollTOTP(os.Stdout, flags.String("issuer-name"), flags.String("user"))
		},
	})
}

func totpFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("fhir-totp", flag.ExitOnError)
	flags.String("user", "", "name of the user")
	flags.String("issuer-name", "FHIR", "name that the app shows next to the code")
	return flags
}

func enrollTOTP(out io.Writer, issuerName, user string) (int, error) {
	if user == "" {
		return caddy.ExitCodeFailedStartup, errors.New("missing --user: set it to the user's name in the Caddyfile")
	}
	secret := totp.NewSecret()
	_, err := fmt.Fprintf(out, `Key, to type into an authenticator app:
	%s
Address, to show as a QR code (such as with: qrencode -t ansiutf8):
	%s
In the Caddyfile, in the block of user %s (or a placeholder such as {file./run/secrets/%[3]s.totp}):
	totp_secret %[1]s
`, secret, totp.URI(issuerName, user, secret), user)
	if err != nil {
		return caddy.ExitCodeFailedQuit, err
	}
	return caddy.ExitCodeSuccess, nil
}
