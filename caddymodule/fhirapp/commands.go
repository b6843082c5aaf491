package fhirapp

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-totp",
		Usage: "--user <name> [--issuer-name <words>]",
		Short: "Makes the key of an authenticator app for a user",
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
			return enrolTOTP(os.Stdout, flags.String("issuer-name"), flags.String("user"))
		},
	})
}

func totpFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("fhir-totp", flag.ExitOnError)
	flags.String("user", "", "name of the user")
	flags.String("issuer-name", "FHIR", "what the app shows beside the code")
	return flags
}

func enrolTOTP(out io.Writer, issuerName, user string) (int, error) {
	if user == "" {
		return caddy.ExitCodeFailedStartup, errors.New("--user is missing: the user's name in the Caddyfile")
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
