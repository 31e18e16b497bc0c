package recipes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"agilelimiter"
)

// DatabaseClassify is Config.Classify for a limiter in front of a database. No
// rows is an answer like any other, and so is a constraint that was violated. A
// query has no stream that ends, so EOF is a connection that broke.
func DatabaseClassify(err error) agilelimiter.Outcome {
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return agilelimiter.Unreachable
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return agilelimiter.Aborted // our own mistake, the database was not asked
	}
	return agilelimiter.DefaultClassify(err)
}

// UserName reads one row. The deadline bounds the wait for a slot and the query.
// The connection comes first: waiting for the pool is a queue of ours, and its
// length must not look like the database's latency.
func UserName(ctx context.Context, db *sql.DB, lim *agilelimiter.Limiter, id int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return agilelimiter.DoContext(ctx, lim, func(ctx context.Context) (name string, err error) {
		err = conn.QueryRowContext(ctx, "SELECT name FROM users WHERE id = ?", id).Scan(&name)
		return name, err
	})
}

// Message is what a broker delivers.
type Message struct {
	Body []byte
	Ack  func()
	Nack func() // deliver it again
}

// Consume handles messages at the pace that the handler's downstream allows.
// Run as many as handle should run at once. While they wait for a slot the
// broker's own queue grows, which is the place for it: here a wait without a
// deadline is what one wants. Keep the prefetch small.
func Consume(ctx context.Context, messages <-chan Message, lim *agilelimiter.Limiter, handle func(context.Context, []byte) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-messages:
			if !open {
				return nil
			}
			err := lim.DoContext(ctx, func(ctx context.Context) error { return handle(ctx, m.Body) })
			switch {
			case err == nil:
				m.Ack()
			case agilelimiter.IsRefusal(err): // ctx ended in the queue: it was not handled
				m.Nack()
				return err
			default:
				m.Nack()
			}
		}
	}
}
