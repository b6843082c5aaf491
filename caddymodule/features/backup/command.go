package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup/storecopy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-store",
		Usage: "copy --from <path> --to <path> [--adapter <name>] [--merge] [--force]",
		Short: "Copies the fhir app's durable state to another store",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(storeCopyCommand())
		},
	})
}

func storeCopyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy --from <path> --to <path> [--adapter <name>] [--merge] [--force]",
		Short: "Copies the durable store of one configuration to another configuration's store",
		Long:  storeCopyHelp,
		Args:  cobra.NoArgs,
		RunE:  caddycmd.WrapCommandFuncForCobra(copyStore),
	}
	cmd.Flags().String("from", "", "configuration whose store is the source")
	cmd.Flags().String("to", "", "configuration whose store is the target")
	cmd.Flags().String("adapter", "", "config adapter of both configurations")
	cmd.Flags().Bool("merge", false, "allow a target that is not empty")
	cmd.Flags().Bool("force", false, "copy even if a gateway seems to be running")
	return cmd
}

const storeCopyHelp = `
Copies all durable state, such as sessions, refresh tokens, consents,
revocations and second factors, from the durable store of one configuration
to the durable store of another: a file, redis or postgres. Each entry keeps
its remaining lifetime.

Stop all gateways that use either store. The command fails while a gateway is
registered in the store as running, or has the file open. A gateway that was
killed stays registered for half a minute. Finally, all entries are verified.

After an interruption, run the same command again to complete the copy. Until
then, no gateway starts with the target.

--from
    The configuration whose durable store is the source.

--to
    The configuration whose durable store is the target. It must be empty.

--adapter
    The config adapter, for configurations whose file names are neither those
    of JSON files nor of Caddyfiles.

--merge
    Copy to a store that is not empty. Its entries take precedence and are not
    changed; entries that were deleted there since an earlier copy are restored.

--force
    Copy even if a gateway seems to be using one of the stores. Its changes
    during the copy may be missing in the target.`

const fileLockTimeout = 3 * time.Second

func copyStore(flags caddycmd.Flags) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := storeCopier{
		out: os.Stdout, opener: fhirapp.StoreOpener{Adapter: flags.String("adapter"), LockTimeout: fileLockTimeout},
		merge: flags.Bool("merge"), force: flags.Bool("force"),
	}
	if err := c.run(ctx, flags.String("from"), flags.String("to")); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

// storeCopier copies the durable store of one configuration to that of another.
type storeCopier struct {
	out        io.Writer
	opener     fhirapp.StoreOpener
	merge      bool
	force      bool
	lastReport time.Time
}

func (c *storeCopier) run(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return errors.New("missing --from or --to: set each to a configuration file")
	}
	source, err := c.opener.Open(ctx, from, false)
	if err != nil {
		return fmt.Errorf("--from %s: %w", from, err)
	}
	defer source.Close()
	target, err := c.opener.Open(ctx, to, true)
	if err != nil {
		return fmt.Errorf("--to %s: %w", to, err)
	}
	defer target.Close()
	if err := c.printf("Copying %s to %s. Keep all gateways stopped until the copy is complete.\n", source.Name, target.Name); err != nil {
		return err
	}
	c.lastReport = time.Now()
	counts, err := storecopy.Run(ctx, source, target, storecopy.Options{
		Source: source.Identity, Merge: c.merge, Force: c.force, Batch: target.Batch, Progress: c.reportProgress,
	})
	if err != nil {
		return c.addRemedy(err)
	}
	err = c.printf("Read %d entries: copied %d, kept %d that differ in the target, removed %d left over from an interrupted copy; verified %d.\n",
		counts.Read, counts.Copied, counts.Conflicts, counts.Removed, counts.Compared)
	return errors.Join(err, c.printf("%s\n", describeKeys(source.Keys, target.Keys)))
}

func (c *storeCopier) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format, args...)
	return err
}

// reportInterval is the interval between progress reports.
const reportInterval = 2 * time.Second

func (c *storeCopier) reportProgress(n storecopy.Counts) {
	if time.Since(c.lastReport) < reportInterval {
		return
	}
	c.lastReport = time.Now()
	_ = c.printf("%d entries copied, %d verified…\n", n.Copied, n.Compared) // ignore errors: the final report repeats the numbers
}

// addRemedy adds instructions to errors that the operator can correct.
func (*storeCopier) addRemedy(err error) error {
	remedy := "run the same command again to complete the copy"
	switch {
	case errors.Is(err, storecopy.ErrSameStore):
		return err
	case errors.Is(err, copyguard.ErrRunning):
		remedy = "stop all gateways, or use --force to copy anyway"
	case errors.Is(err, storecopy.ErrNotEmpty):
		remedy = "empty the target; or, if it was never the source or target of a copy, add the missing entries with --merge"
	case errors.Is(err, storecopy.ErrOtherSource):
		remedy = "complete the interrupted copy from its original source, or empty the target"
	case errors.Is(err, storecopy.ErrConcurrentChange):
		remedy = "stop all gateways and run the same command again; if a gateway wrote to the target, empty the target first, because completing the copy overwrites it"
	case errors.Is(err, store.ErrFull):
		remedy = "raise max_entries of the target or give it more memory, then run the same command again"
	}
	return fmt.Errorf("%w; %s", err, remedy)
}

// describeKeys returns a message about the location of signing keys and registered clients after a copy.
func describeKeys(from, to fhirapp.KeysLocation) string {
	sameStorage := from.Storage == to.Storage
	switch {
	case from.InStore && to.InStore:
		return "Signing keys and registered clients were copied, too. The keys are sealed: do not change store_key."
	case from.InStore:
		return "Signing keys and registered clients are in the store, but the configuration of --to has no store_key to unseal them: without store_key, all tokens become invalid and clients must register again."
	case to.InStore && sameStorage:
		return "Signing keys and registered clients are still in Caddy's storage. The first gateway that starts with store_key copies them to the store."
	case sameStorage:
		return "Signing keys and registered clients stay in Caddy's storage, which both configurations share."
	}
	return "Signing keys and registered clients are in Caddy's storage, and --to uses a different storage: copy them with caddy storage export and import; otherwise, all tokens become invalid."
}
