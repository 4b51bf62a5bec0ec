// A question before something is done that costs work, or cannot be taken back.
import { Button, CloseButton, Dialog, Portal } from "@chakra-ui/react";
import type { ReactNode } from "react";

/** `children`: a `Confirmation`, which is made anew each time that the dialog opens. */
export function ConfirmDialog({
  children,
  finalFocus,
  onClose,
  open,
  size,
}: {
  children: ReactNode;
  /** What has the focus when it is closed. */
  finalFocus?: () => HTMLElement | null;
  onClose: () => void;
  open: boolean;
  size?: "md" | "lg";
}) {
  return (
    <Dialog.Root
      finalFocusEl={finalFocus}
      lazyMount
      onOpenChange={({ open: stays }) => !stays && onClose()}
      open={open}
      placement="center"
      size={size}
      unmountOnExit
    >
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content>
            {children}
            <Dialog.CloseTrigger asChild>
              <CloseButton aria-label="Close" size="sm" />
            </Dialog.CloseTrigger>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

/** `cancel`, `confirm`: what the buttons say; null: there is nothing to confirm any more. */
export function Confirmation({
  cancel,
  children,
  confirm,
  disabled,
  isHarmless,
  isLong,
  loading,
  onCancel,
  onConfirm,
  title,
}: {
  cancel: string;
  children: ReactNode;
  confirm: string | null;
  disabled?: boolean;
  /** Nothing that runs is lost by it. */
  isHarmless?: boolean;
  /** The body scrolls, also by keys. */
  isLong?: boolean;
  loading?: boolean;
  onCancel: () => void;
  onConfirm: () => void;
  title: string;
}) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onConfirm();
      }}
    >
      <Dialog.Header>
        <Dialog.Title>{title}</Dialog.Title>
      </Dialog.Header>
      <Dialog.Body {...(isLong ? { maxH: "60vh", overflowY: "auto", tabIndex: 0 } : {})}>{children}</Dialog.Body>
      <Dialog.Footer>
        <Button onClick={onCancel} variant="outline">
          {cancel}
        </Button>
        {confirm !== null && (
          <Button colorPalette={isHarmless ? "blue" : "red"} data-autofocus disabled={disabled} loading={loading} type="submit">
            {confirm}
          </Button>
        )}
      </Dialog.Footer>
    </form>
  );
}
