package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
)

func main() {
	output := flag.String("o", "", "file to write (default: caddy, beside go.mod)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *output, flag.Args()); err != nil {
		log.Fatalf("build: %v", err)
	}
}

// run builds Caddy into the file output.
func run(ctx context.Context, output string, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	toolchain, err := findToolchain(ctx)
	if err != nil {
		return err
	}
	root := filepath.Dir(toolchain.Module)
	if output, err = outputFile(output, root); err != nil {
		return err
	}
	// xcaddy reads other paths of its configuration from the working directory.
	if err := os.Chdir(root); err != nil {
		return err
	}
	builder, err := readConfig(filepath.Join(root, configFile))
	if err != nil {
		return err
	}
	resolve(builder, root)
	if err := download(ctx, root); err != nil {
		return err
	}
	if builder.Env, err = toolchain.offline(os.Environ()); err != nil {
		return err
	}
	steps := new(progress)
	builder.OnStep = steps.step
	if err := builder.Build(ctx, output); err != nil {
		return fmt.Errorf("%w\n%s", err, steps.output)
	}
	if err := checkBinary(ctx, output, root); err != nil {
		// A binary that may hold other code must not be taken for a good one.
		return errors.Join(err, os.Remove(output))
	}
	return nil
}

// outputFile is the file to write, made absolute before the working directory
// changes.
func outputFile(output, root string) (string, error) {
	if output != "" {
		return filepath.Abs(output)
	}
	name := "caddy"
	if target := os.Getenv("GOOS"); target == "windows" || target == "" && runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(root, name), nil
}
